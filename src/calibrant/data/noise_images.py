"""Noise: the farthest outliers, as a check that a detector is not blind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from calibrant.data.arrays import ArrayData
from calibrant.data.base import Source
from calibrant.data.images import ImageForm
from calibrant.slots import register

_COUNT = 2000


@register("source", "noise")
class NoiseSource(Source):
    """Uniform and Gaussian noise, half and half, every pixel and channel on its own; the same images every time."""

    spec = "noise?size=32"
    about = "uniform and Gaussian noise, 2,000 outliers of any size"
    obtain = "nothing to do: drawn by a seed"

    def __init__(self, path: str, *, size: str = "32", color: str = "rgb") -> None:
        self.form = ImageForm.parse(size, color)

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """It is drawn when it is needed."""
        return "always"

    def read(self, part: str | None) -> ArrayData:
        """All of it."""
        assert self.form.size is not None
        rng = np.random.default_rng(0)
        shape = (_COUNT // 2, 1 if self.form.color == "gray" else 3, *self.form.size)
        uniform = rng.integers(0, 256, shape, dtype=np.uint8)
        gaussian = rng.normal(127.5, 64.0, shape).clip(0, 255).astype(np.uint8)
        return ArrayData(torch.from_numpy(np.concatenate([uniform, gaussian])), None, None, "noise")
