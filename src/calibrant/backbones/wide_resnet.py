"""WideResNet-d-k for small images (Zagoruyko and Komodakis, 2016): pre-activation blocks in three groups."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant import InputError


class _Block(nn.Module):
    """BN, ReLU, 3x3, BN, ReLU, 3x3, and a shortcut: the identity, or a 1x1 on the activated input."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) -> (B, outputs, H / stride, W / stride)."""
        active = F.relu(self.bn1(x))
        residual = x if self.shortcut is None else self.shortcut(active)
        hidden = self.conv1(active)
        hidden = self.conv2(self.dropout(F.relu(self.bn2(hidden))))
        total: Tensor = residual + hidden
        return total


class WideResNet(nn.Module):
    """Images (B, channels, H, W) -> logits (B, classes); WRN-40-2 is `WideResNet(40, 2, 100)`.

    >>> sum(p.numel() for p in WideResNet(40, 2, 100).parameters())
    2255156
    """

    def __init__(self, depth: int, width: int, classes: int, *, channels: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6:
            raise InputError(
                f"depth must be 6 n + 4 for a whole n of at least 1 (10, 16, 22, 28, 40, ...), not {depth}"
            )
        if width < 1:
            raise InputError(f"width must be at least 1, not {width}")
        blocks, widths = (depth - 4) // 6, [16, 16 * width, 32 * width, 64 * width]
        self.stem = nn.Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.groups = nn.Sequential(
            *(
                _Block(widths[g] if b == 0 else widths[g + 1], widths[g + 1], 2 if g and b == 0 else 1, dropout)
                for g in range(3)
                for b in range(blocks)
            )
        )
        self.norm = nn.BatchNorm2d(widths[3])
        self.head = nn.Linear(widths[3], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> (B, classes)."""
        hidden = F.relu(self.norm(self.groups(self.stem(x))))
        logits: Tensor = self.head(hidden.mean((2, 3)))
        return logits
