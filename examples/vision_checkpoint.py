"""From somebody else's weights to a certified predictor: a CIFAR-10 ResNet-20 that others trained.

The checkpoint is cifar10_resnet20-12fca82f.th of github.com/akamaster/pytorch_resnet_cifar10 (BSD-2-Clause), as one
downloads it. It was trained on all 50,000 training images, so everything here is fitted to one part of the test images
and measured on another. Outliers are photographs of LSUN (resized); CIFAR-100 and noise are outliers of kinds that
nothing is fitted to.

    python examples/vision_checkpoint.py --weights cifar10_resnet20-12fca82f.th --data DIR --out certified
"""

import argparse

from torch import Tensor, nn
from torch.nn import functional as F

from calibrant import load
from calibrant.backbones import load_weights
from calibrant.config.loading import load_settings
from calibrant.data import ImageTransform
from calibrant.deploy.own_network import calibrate_network


class Block(nn.Module):
    """Two convolutions and a shortcut, which pads missing channels with zeros (option A of He et al. 2016)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        hidden = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return F.relu(hidden + F.pad(shortcut, (0, 0, 0, 0, self.padding, self.padding)))


class ResNet20(nn.Module):
    """The network as its authors name its parts: `conv1`, `bn1`, `layer1` to `layer3`, `linear`."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(Block(16, 16, 1), Block(16, 16, 1), Block(16, 16, 1))
        self.layer2 = nn.Sequential(Block(16, 32, 2), Block(32, 32, 1), Block(32, 32, 1))
        self.layer3 = nn.Sequential(Block(32, 64, 2), Block(64, 64, 1), Block(64, 64, 1))
        self.linear = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, 3, 32, 32) -> logits (B, num_classes)."""
        hidden = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(hidden.mean((2, 3)))


def main() -> None:
    """Calibrate, certify, save, load, answer."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--weights", help="the checkpoint; without it the weights are random")
    parser.add_argument("--data", required=True, help="folder with CIFAR-10, CIFAR-100 and LSUN (resized)")
    parser.add_argument("--out", required=True, help="run directory to make")
    parser.add_argument("--override", action="append", default=[], help="a setting, key=value")
    given = parser.parse_args()

    network = ResNet20()
    if given.weights:
        load_weights(network, given.weights)  # entry `state_dict`, names that begin with `module.`
    imagenet = ImageTransform(size=32, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), channels=3)

    wanted = ["data.source=cifar10", "data.uncertainty=lsun-resize", "data.ood=[cifar100, noise]"]
    wanted += ["rule.max_error=0.03", "rule.max_outliers=0.2", "rule.min_coverage=0.7", "rule.delta=0.1"]
    settings = load_settings("own-network", None, [f"data.root={given.data}", *wanted, *given.override])
    found = calibrate_network(network, settings, given.out, transform=imagenet, progress=False)

    print(f"{'system':24}{'answered':>10}{'accuracy':>10}{'ECE':>7}  outliers accepted")
    for evaluation in found.evaluations:
        rows = [row for row in found.rows if row.system == evaluation.system]
        for coverage in dict.fromkeys(row.wanted_coverage for row in rows):
            at = [row for row in rows if row.wanted_coverage == coverage]
            shares = [at[0].coverage.estimate, at[0].accuracy.estimate, at[0].ece.estimate]
            counts = ", ".join(f"{row.accepted_ood} of {row.n_ood} {row.ood}" for row in at)
            print("{:24}{:>9.1f}%{:>9.1f}%{:>6.1f}%  {}".format(at[0].system, *(100 * s for s in shares), counts))
    print("deployed:", found.deployed())
    if found.predictor.certificate is not None:
        print("certificate:", found.predictor.certificate.sentence())

    predictor = load(f"{given.out}/predictors/network+trust", ResNet20())
    photo = found.data.test[0][0]
    print("one photo:", predictor(photo[None]).table())


if __name__ == "__main__":
    main()
