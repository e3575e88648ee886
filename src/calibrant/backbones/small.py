"""Small networks for small data: a convolutional one for images of eight pixels or more, and an MLP for anything."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from calibrant import InputError


class SmallCNN(nn.Module):
    """Images (B, channels, H, W) -> logits (B, classes): `depth` stages of 3x3, BN, ReLU; halved in size between."""

    def __init__(self, classes: int, *, width: int = 16, depth: int = 2, channels: int = 1) -> None:
        super().__init__()
        if width < 1 or depth < 1:
            raise InputError(f"width and depth must be at least 1, not {width} and {depth}")
        stages: list[nn.Module] = []
        for stage in range(depth):
            inputs, outputs = (width << (stage - 1) if stage else channels), width << stage
            stages += [
                nn.Conv2d(inputs, outputs, 3, stride=2 if stage else 1, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(width << (depth - 1), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, classes)."""
        logits: Tensor = self.head(self.stages(x).mean((2, 3)))
        return logits


class MLP(nn.Module):
    """Inputs of any shape, flattened -> logits (B, classes), through ReLU layers of the `hidden` sizes.

    >>> MLP((3, 4), 2, hidden=(8,))
    MLP(
      (layers): Sequential(
        (0): Flatten(start_dim=1, end_dim=-1)
        (1): Linear(in_features=12, out_features=8, bias=True)
        (2): ReLU()
        (3): Linear(in_features=8, out_features=2, bias=True)
      )
    )
    """

    def __init__(self, shape: int | Sequence[int], classes: int, *, hidden: Sequence[int] = (128, 128)) -> None:
        super().__init__()
        size = shape if isinstance(shape, int) else math.prod(shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.layers = nn.Sequential(*layers, nn.Linear(size, classes))

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, classes)."""
        logits: Tensor = self.layers(x)
        return logits
