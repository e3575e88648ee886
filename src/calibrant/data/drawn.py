"""Sources whose images are drawn when they are needed, of any size, and the same every time."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.data.arrays import ArrayData
from calibrant.data.base import Source
from calibrant.data.images import ImageForm


class DrawnSource(Source):
    """Outliers without labels and parts; a subclass says in `draw` what they look like."""

    name: ClassVar[str]

    def __init__(self, path: str, *, size: str = "32", color: str = "rgb") -> None:
        self.form = ImageForm.parse(size, color)

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """Nothing has to be got."""
        return "always"

    def read(self, part: str | None) -> ArrayData:
        """All images."""
        assert self.form.size is not None
        images = self.draw(np.random.default_rng(0), self.form.size, self.form.color)
        return ArrayData(torch.from_numpy(images), None, None, self.name)

    @abstractmethod
    def draw(self, rng: np.random.Generator, size: tuple[int, int], color: str) -> NDArray[np.uint8]:
        """Images (N, C, H, W) of `size` (H, W) and `color`, "rgb" or "gray"."""
