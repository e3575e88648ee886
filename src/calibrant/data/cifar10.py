"""CIFAR-10 (Krizhevsky 2009), as a source."""

from __future__ import annotations

from pathlib import Path

from calibrant.data import cifar
from calibrant.data.arrays import ArrayData
from calibrant.data.download import Archive
from calibrant.data.published import PublishedSource
from calibrant.slots import register


@register("source", "cifar10")
class Cifar10Source(PublishedSource):
    """50,000 training and 10,000 test images of 10 classes."""

    archive = Archive(
        "cifar-10-python.tar.gz",
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
    )
    spec = "cifar10:PATH"
    about = "CIFAR-10, 10 classes, 32 x 32"
    obtain = f"put {archive.file} or its folder into PATH, or let it be downloaded (170 MB)"
    parts = "train and test"

    @classmethod
    def located(cls, path: Path) -> bool:
        """Whether the folder or the archive is at or in `path`."""
        return cifar.locate(path, 10) is not None

    def has_parts(self) -> bool:
        """It has."""
        return True

    def read_at(self, path: Path, part: str | None) -> ArrayData:
        """One part; the training part where none is named."""
        return cifar.read(path, part or "train", 10)
