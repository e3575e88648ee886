"""Random crop and flip of whole batches, on the device where they are, in the type that they have."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from calibrant.data.arrays import DataError


@dataclass(frozen=True)
class Augmentation:
    """Pad by `padding` zeros, crop back at a random place, mirror left to right with probability 1/2 if `flip`.

    Every image of the batch gets its own place and its own toss. Mirror only what stays itself in a mirror: not digits.

    >>> images = torch.arange(4, dtype=torch.uint8).reshape(1, 1, 2, 2)
    >>> Augmentation(padding=1, flip=False)(images, torch.Generator().manual_seed(0)).shape
    torch.Size([1, 1, 2, 2])
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise DataError(f"padding must not be negative, but it is {self.padding}")

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augmented copies of `images` (B, C, H, W); all draws come from `generator`."""
        if images.dim() != 4:
            raise DataError(f"only images (B, C, H, W) can be cropped and flipped, not shape {tuple(images.shape)}")
        result = images
        if self.padding:
            result = self._crop(result, generator)
        if self.flip:
            toss = self._draw(2, len(images), generator, images.device).bool()
            result = torch.where(toss.view(-1, 1, 1, 1), result.flip(3), result)
        return result

    def _crop(self, images: Tensor, generator: torch.Generator) -> Tensor:
        batch, _, height, width = images.shape
        windows = pad(images, [self.padding] * 4).unfold(2, height, 1).unfold(3, width, 1)
        places = 2 * self.padding + 1
        top = self._draw(places, batch, generator, images.device)
        left = self._draw(places, batch, generator, images.device)
        return windows[torch.arange(batch, device=images.device), :, top, left]

    @staticmethod
    def _draw(high: int, count: int, generator: torch.Generator, device: torch.device) -> Tensor:
        return torch.randint(high, (count,), generator=generator, device=generator.device).to(device)
