"""What docs/posterior.md says of 20 members one after another, in one pass, and drawn, in units of one forward pass."""

from __future__ import annotations

import torch

from benchmarks.measure import best_of
from benchmarks.members import _sampled, _without_gradients
from calibrant.backbones import build
from calibrant.posteriors import MeanField
from calibrant.posteriors import ensemble as running

NETWORKS = (("mlp-64", (1, 8, 8)), ("cnn-16", (1, 8, 8)), ("resnet-20", (3, 32, 32)))


def main() -> None:
    torch.set_num_threads(1)
    net = build(*NETWORKS[0], 10).eval()
    works = (_without_gradients(f, torch.rand(1, *NETWORKS[0][1])) for f in (net, MeanField(net).sample(20)))
    one, a = best_of(150, *works)
    print(f"{NETWORKS[0][0]}, batch 1: {a / one:.0f} drawn at every call", flush=True)
    running.is_small = lambda x: True  # type: ignore[attr-defined]
    for name, shape in NETWORKS:
        net = build(name, shape, 10).eval()
        together, apart = _sampled(net), _sampled(net)
        apart._batches = False
        for batch in (1, 8, 32, 128):
            x = torch.rand(batch, *shape)
            one, a, b = best_of(
                3 if name == "resnet-20" else 10, *(_without_gradients(f, x) for f in (net, apart, together))
            )
            print(f"{name}, batch {batch}: {a / one:.1f} one after another, {b / one:.1f} in one pass", flush=True)


if __name__ == "__main__":
    main()
