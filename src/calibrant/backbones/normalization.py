"""Input normalization as a part of the model: users pass raw images, and what is saved knows their scale."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError


class Normalize(nn.Module):
    """`module((x - mean) / std)`, channel by channel; uint8 images are first brought to the scale 0 to 1.

    `mean`, `std`: (C,) for inputs (B, C, ...). Both are buffers: saved, moved and cast with the model.

    >>> inner = nn.Flatten()
    >>> Normalize(inner, torch.tensor([0.5]), torch.tensor([0.25]))(torch.full((1, 1, 2, 1), 255, dtype=torch.uint8))
    tensor([[2., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        if mean.dim() != 1 or mean.shape != std.shape:
            raise InputError(f"mean and std must be one number a channel, not of shape {tuple(mean.shape)}")
        self.module = module
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Any:
        """The output of the module for raw `x`."""
        shape = (1, -1) + (1,) * (x.dim() - 2)
        scaled = x.to(self.mean.dtype) / 255 if x.dtype == torch.uint8 else x
        return self.module((scaled - self.mean.view(shape)) / self.std.view(shape))
