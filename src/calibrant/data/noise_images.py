"""Noise: the farthest outliers, as a check that a detector is not blind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.data.drawn import DrawnSource
from calibrant.slots import register

_COUNT = 2000


@register("source", "noise")
class NoiseSource(DrawnSource):
    """Uniform and Gaussian noise, half and half, every pixel and channel on its own; the same images every time."""

    name = "noise"
    spec = "noise?size=32"
    about = "uniform and Gaussian noise, 2,000 outliers of any size"
    obtain = "nothing to do: drawn by a seed"

    def draw(self, rng: np.random.Generator, size: tuple[int, int], color: str) -> NDArray[np.uint8]:
        """First the uniform images, then the Gaussian ones."""
        shape = (_COUNT // 2, 1 if color == "gray" else 3, *size)
        uniform = rng.integers(0, 256, shape, dtype=np.uint8)
        gaussian = rng.normal(127.5, 64.0, shape).clip(0, 255).astype(np.uint8)
        return np.concatenate([uniform, gaussian])
