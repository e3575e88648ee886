"""Images with their patches in random order: local texture is kept, global shape is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer, uniform
from calibrant.slots import register


@register("synthesizer", "patch_shuffle")
@dataclass(frozen=True)
class PatchShuffle(Synthesizer):
    """Cut each image into patches of `patch` x `patch` pixels and shuffle them, by a permutation of its own.

    By default a patch is a quarter of the image's height and width: 8 x 8 pixels for images of 32 x 32. Where the side
    is not a multiple of the patch, the remaining pixels at the right and the bottom stay where they are.

    >>> images = torch.arange(16.0).view(1, 1, 4, 4)
    >>> PatchShuffle(patch=2)(images, torch.Generator().manual_seed(1))[0, 0]
    tensor([[ 2.,  3.,  8.,  9.],
            [ 6.,  7., 12., 13.],
            [10., 11.,  0.,  1.],
            [14., 15.,  4.,  5.]])
    """

    patch: int | None = None
    kind: ClassVar[DataKind] = "images"

    def _size(self, inputs: Tensor) -> tuple[int, int]:
        """Height and width of a patch."""
        height, width = inputs.shape[2:]
        return (height // 4, width // 4) if self.patch is None else (self.patch, self.patch)

    def obstacle(self, inputs: Tensor) -> str | None:
        """Too small images, and patches of which an image does not hold two."""
        found = super().obstacle(inputs)
        if found is not None:
            return found
        if self.patch is not None and self.patch < 1:
            return f"patch must be a positive number of pixels, not {self.patch}"
        height, width = self._size(inputs)
        if (inputs.shape[2] // height) * (inputs.shape[3] // width) < 2:
            return f"images of {inputs.shape[2]} x {inputs.shape[3]} pixels do not hold two patches of {self.patch}"
        return None

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Images (N, C, H, W) with shuffled patches."""
        n, channels = inputs.shape[:2]
        height, width = self._size(inputs)
        rows, columns = inputs.shape[2] // height, inputs.shape[3] // width
        order = uniform((n, rows * columns), generator, inputs.device).argsort(1)
        grid = inputs[:, :, : rows * height, : columns * width]
        patches = grid.reshape(n, channels, rows, height, columns, width).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
        shuffled = patches[torch.arange(n, device=inputs.device)[:, None], order]
        back = shuffled.view(n, rows, columns, channels, height, width).permute(0, 3, 1, 4, 2, 5)
        result = inputs.clone()
        result[:, :, : rows * height, : columns * width] = back.reshape(grid.shape)
        return result
