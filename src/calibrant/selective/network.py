"""The selector's network: two hidden ReLU layers on standardized (confidence, scores)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from calibrant.adapters.fitted import FittedModule
from calibrant.detectors.base import Standardize


class SelectorNetwork(FittedModule):
    """Logits (n,) of inputs (n, `inputs`): standardize, two hidden layers of `hidden` with ReLU, one output.

    The initial weights are uniform in +-1 / sqrt(fan in), drawn with `seed` alone.

    >>> sum(p.numel() for p in SelectorNetwork(5).parameters())
    4609
    """

    def __init__(self, inputs: int, *, hidden: int = 64, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.standard = Standardize()
        self.layers = nn.Sequential(
            _linear(inputs, hidden, generator),
            nn.ReLU(),
            _linear(hidden, hidden, generator),
            nn.ReLU(),
            _linear(hidden, 1, generator),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (...,) of inputs (..., D)."""
        logits: Tensor = self.layers(self.standard(inputs))
        return logits.squeeze(-1)


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, device="meta").to_empty(
        device="cpu"
    )  # the usual initialization reads global random state
    bound = 1 / math.sqrt(inputs)
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer
