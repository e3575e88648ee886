"""The contract of a synthesizer, and what kind of data inputs are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

DataKind = Literal["images", "table", "tokens"]
MIN_SIDE = 4  # pixels: smaller images have no structure to destroy


def kind_of(inputs: Tensor) -> DataKind | None:
    """What `inputs` are, by their dimensions and type; None where outliers cannot be made from them.

    Images are (N, C, H, W), uint8 or floating point; a table is (N, D), floating point, uint8 or boolean; tokens are
    (N, L), integers other than uint8.

    >>> kind_of(torch.zeros(5, 3, 32, 32)), kind_of(torch.zeros(5, 7)), kind_of(torch.zeros(5, 7, dtype=torch.long))
    ('images', 'table', 'tokens')
    """
    quantities = inputs.is_floating_point() or inputs.dtype in (torch.uint8, torch.bool)
    if inputs.dim() == 4 and quantities and inputs.dtype != torch.bool:
        return "images"
    if inputs.dim() != 2 or inputs.is_complex():
        return None
    return "table" if quantities else "tokens"


class Synthesizer(ABC):
    """Makes outliers from inputs: the same shape and type, the low-level statistics kept, the meaning destroyed.

    A subclass is registered by `@register("synthesizer", NAME)`. Its options are the keywords of its constructor, all
    randomness comes from the generator that it is given, and it leaves its arguments as they are.
    """

    kind: ClassVar[DataKind | None] = None
    """The kind of data that it takes; None for any."""

    def obstacle(self, inputs: Tensor) -> str | None:
        """Why no outliers can be made from `inputs`; None where they can."""
        kind = kind_of(inputs)
        if self.kind is not None and kind != self.kind:
            return f"it takes {self.kind}, not inputs of shape {tuple(inputs.shape)} and type {inputs.dtype}"
        if self.kind == "images" and min(inputs.shape[2:]) < MIN_SIDE:
            return f"images of {inputs.shape[2]} x {inputs.shape[3]} pixels are too small"
        if self.kind in ("table", "tokens") and inputs.shape[1] < 2:
            return "it needs at least two columns"
        return None

    @abstractmethod
    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """One outlier for each of `inputs` (N, ...); `labels` (N,) are their classes, where they are known."""


def uniform(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Uniform numbers in [0, 1), drawn on the generator's device, so that a seed means the same on every device."""
    return torch.rand(shape, generator=generator, device=generator.device).to(device)


def value_range(images: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest value that pixels can have, broadcastable to `images` (N, C, H, W), floating point.

    0 and 255 for uint8; 0 and 1 for floating point values within these; else, for normalized images, the minimum and
    the maximum of each channel.
    """
    if images.dtype == torch.uint8:
        return torch.zeros(1, device=images.device), torch.full((1,), 255.0, device=images.device)
    low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
    if bool((low >= 0).all()) and bool((high <= 1).all()):
        return torch.zeros_like(low), torch.ones_like(high)
    return low, high


def as_pixels(values: Tensor, images: Tensor) -> Tensor:
    """`values`, clipped to the range of `images` and, for uint8, rounded; of the type of `images`."""
    low, high = value_range(images)
    clipped = torch.minimum(torch.maximum(values, low.to(values.dtype)), high.to(values.dtype))
    return (clipped.round() if images.dtype == torch.uint8 else clipped).to(images.dtype)
