"""What 80 steps of the README's loop do to a network that somebody else trained, by its batch normalization.

    python -m benchmarks.fine_tuned --data /data --weights cifar10_resnet20-12fca82f.th

Runs the code of the README as it stands there on 2,560 validation images of the profile `pretrained`, once with the
statistics of batch normalization frozen and once without, and prints the accuracy of 20 members on other ones. --data
is the folder with CIFAR-10 and LSUN_resize, --weights the ResNet-20 of akamaster/pytorch_resnet_cifar10.
"""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.outlier_cases import pretrained

README = Path(__file__).parent.parent / "README.md"


def loop() -> str:
    """The code of the README that makes a trained network Bayesian."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), flags=re.S)
    (code,) = (block for block in blocks if "MeanField(network)" in block)
    return code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--images", type=int, default=1000, help="to test on")
    chosen = parser.parse_args()
    network, parts = pretrained(chosen.data, chosen.weights)
    test = TensorDataset(*parts.validation.take(torch.arange(chosen.images)))
    train = TensorDataset(*parts.validation.take(torch.arange(2440, 5000)))
    with torch.no_grad():
        before = network(test.tensors[0]).argmax(1) == test.tensors[1]
    print(f"the network: {100 * before.float().mean():.1f} %", flush=True)
    for frozen in (True, False):
        torch.manual_seed(0)
        tuned: nn.Module = copy.deepcopy(network).train()
        for layer in tuned.modules():
            if isinstance(layer, _BatchNorm) and frozen:
                layer.eval()
        loaders = DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=250)
        names: dict[str, Any] = {"network": tuned, "train_loader": loaders[0], "test_loader": loaders[1]}
        exec(loop(), names)
        right = torch.as_tensor(names["probabilities"]).argmax(-1) == test.tensors[1]
        print(f"statistics {'frozen' if frozen else 'not frozen'}: {100 * right.float().mean():.1f} %", flush=True)


if __name__ == "__main__":
    main()
