"""Images with inverted intensities, as a photographic negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer, as_pixels, value_range
from calibrant.slots import register


@register("synthesizer", "inversion")
@dataclass(frozen=True)
class Inversion(Synthesizer):
    """255 - x for uint8, 1 - x for values in [0, 1], else (normalized images) minimum + maximum of the channel - x.

    >>> Inversion()(torch.full((1, 1, 4, 4), 5, dtype=torch.uint8), torch.Generator()).unique()
    tensor([250], dtype=torch.uint8)
    """

    kind: ClassVar[DataKind] = "images"

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Images (N, C, H, W) inverted; the generator is not used."""
        if inputs.dtype == torch.uint8:
            return 255 - inputs
        low, high = value_range(inputs)
        return as_pixels(low + high - inputs, inputs)
