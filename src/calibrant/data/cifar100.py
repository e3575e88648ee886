"""CIFAR-100 (Krizhevsky 2009), as a source."""

from __future__ import annotations

from pathlib import Path

from calibrant.data import cifar
from calibrant.data.arrays import ArrayData
from calibrant.data.download import Archive
from calibrant.data.published import PublishedSource
from calibrant.slots import register


@register("source", "cifar100")
class Cifar100Source(PublishedSource):
    """50,000 training and 10,000 test images of 100 classes."""

    archive = Archive(
        "cifar-100-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
    )
    spec = "cifar100:PATH"
    about = "CIFAR-100, 100 classes, 32 x 32"
    obtain = f"put {archive.file} or its folder into PATH, or let it be downloaded (169 MB)"
    parts = "train and test"

    @classmethod
    def located(cls, path: Path) -> bool:
        """Whether the folder or the archive is at or in `path`."""
        return cifar.locate(path, 100) is not None

    def has_parts(self) -> bool:
        """It has."""
        return True

    def read_at(self, path: Path, part: str | None) -> ArrayData:
        """One part; the training part where none is named."""
        return cifar.read(path, part or "train", 100)
