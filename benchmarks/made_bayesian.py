"""What being made Bayesian costs a network that somebody else trained.

    python -m benchmarks.made_bayesian --data /data --weights cifar10_resnet20-12fca82f.th

Draws 20 members of `MeanField(network)` for several initial standard deviations and prints the accuracy of the network,
of the ensemble and of a single member on 1,000 validation images of the profile `pretrained`, and the share of
predicted classes that differ between two members. --data is the folder with CIFAR-10 and LSUN_resize, --weights the
ResNet-20 of akamaster/pytorch_resnet_cifar10.
"""

from __future__ import annotations

import argparse
from itertools import combinations

import torch

from benchmarks.outlier_cases import pretrained
from calibrant.posteriors import MeanField


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--members", type=int, default=20)
    chosen = parser.parse_args()
    network, parts = pretrained(chosen.data, chosen.weights)
    x, y = parts.validation.take(torch.arange(1000))
    plain = torch.cat([network(batch) for batch in x.split(250)]).argmax(1)
    print("| init_std | network | ensemble | one member | differ |\n|---|---|---|---|---|")
    for std in (None, 0.001, 0.01, 0.03162277660168379):
        ensemble = MeanField(network, init_std=std).sample(chosen.members)
        probabilities = torch.cat([ensemble.probabilities(batch) for batch in x.split(250)], 1)
        members = probabilities.argmax(2)
        differ = torch.stack([(a != b).float().mean() for a, b in combinations(members, 2)]).mean()
        rates = [plain == y, probabilities.mean(0).argmax(1) == y, members == y]
        cells = [f"{100 * rate.float().mean():.2f}" for rate in rates]
        print(f"| {std or 'default'} | {' | '.join(cells)} | {100 * differ:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
