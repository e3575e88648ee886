"""ResNets with the stem for small images: ResNet-18 in four groups, ResNet-20 and kin in three (He et al., 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant import InputError

Shortcut = Literal["convolution", "padding"]


class _PaddedShortcut(nn.Module):
    """Every `stride`-th pixel, with channels of zeros on both sides: option A of He et al. (2016), without weights."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.before = stride, (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class _Block(nn.Module):
    """3x3, BN, ReLU, 3x3, BN, added to the shortcut, ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if (stride != 1 or inputs != outputs) and shortcut == "padding":
            self.shortcut = _PaddedShortcut(inputs, outputs, stride)
        elif stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        hidden = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(hidden + self.shortcut(x))


class ResNet(nn.Module):
    """Images (B, channels, H, W) -> logits (B, classes), with `blocks[g]` blocks of `widths[g]` channels in group g.

    `resnet18` and `resnet20` below give the usual ones; both have a 3x3 stem without pooling. Where the shape changes,
    the shortcut is a 1x1 convolution with BatchNorm, or padding with zeros (option A of the paper).

    >>> sum(p.numel() for p in resnet18(10).parameters())
    11173962
    """

    def __init__(
        self,
        blocks: Sequence[int],
        widths: Sequence[int],
        classes: int,
        *,
        channels: int = 3,
        shortcut: Shortcut = "convolution",
    ) -> None:
        super().__init__()
        if len(blocks) != len(widths) or not blocks or min(*blocks, *widths) < 1:
            raise InputError("blocks and widths must be equally long lists of positive numbers")
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        inputs, groups = widths[0], []
        for g, (count, outputs) in enumerate(zip(blocks, widths)):
            for b in range(count):
                groups.append(_Block(inputs, outputs, 2 if g and b == 0 else 1, shortcut))
                inputs = outputs
        self.groups = nn.Sequential(*groups)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, classes)."""
        hidden = self.groups(F.relu(self.norm(self.stem(x))))
        logits: Tensor = self.head(hidden.mean((2, 3)))
        return logits


def resnet18(classes: int, *, width: int = 64, channels: int = 3) -> ResNet:
    """Four groups of two blocks, `width` channels in the first and twice as many in each next."""
    return ResNet([2] * 4, [width << g for g in range(4)], classes, channels=channels)


def resnet20(
    classes: int, *, depth: int = 20, width: int = 16, channels: int = 3, shortcut: Shortcut = "convolution"
) -> ResNet:
    """Three groups of (depth - 2) / 6 blocks: ResNet-20, -32, -44, -56, -110."""
    if depth < 8 or (depth - 2) % 6:
        raise InputError(f"depth must be 6 n + 2 for a whole n of at least 1 (8, 14, 20, 32, ...), not {depth}")
    widths = [width << g for g in range(3)]
    return ResNet([(depth - 2) // 6] * 3, widths, classes, channels=channels, shortcut=shortcut)
