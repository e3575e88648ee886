"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): gray images of clothes, as ten classes or as outliers."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import Source
from calibrant.data.download import default_folder
from calibrant.data.images import ImageForm, resize
from calibrant.files import open_regular
from calibrant.slots import register

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_FILES = {"train": "train", "test": "t10k"}
_SHAPES = {"train": 60_000, "test": 10_000}
_SYSTEM = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package


@register("source", "fashion-mnist")
class FashionMnistSource(Source):
    """60,000 and 10,000 gray images of 28 x 28 in ten classes, in the IDX format."""

    spec = "fashion-mnist:PATH?size=32&color=rgb"
    about = "Fashion-MNIST, 10 classes, 28 x 28, gray"
    obtain = "put its four .gz files into PATH, or install Debian's package dataset-fashion-mnist"
    parts = "train and test"

    def __init__(self, path: str, *, size: str | None = None, color: str | None = None) -> None:
        self.given, self.form = path, ImageForm.parse(size, color or "gray")

    @classmethod
    def where(cls, folder: Path) -> str | None:
        """The folder that holds the files: `folder`, one below it, or the system's."""
        return next((str(place) for place in _places(folder) if (place / _name("test", "images")).is_file()), None)

    def has_parts(self) -> bool:
        """Both parts are there."""
        return True

    def read(self, part: str | None) -> ArrayData:
        """One part, resized and in color where asked."""
        folder = Path(self.given).expanduser() if self.given else default_folder()
        found = self.where(folder)
        if found is None:
            raise DataError(f"{folder} holds no Fashion-MNIST; {self.obtain}")
        chosen = "train" if part is None else part
        count = _SHAPES[chosen]
        pixels = _idx(Path(found) / _name(chosen, "images"), (count, 28, 28))
        labels = _idx(Path(found) / _name(chosen, "labels"), (count,))
        if labels.max() >= len(CLASSES):
            raise DataError(f"{Path(found) / _name(chosen, 'labels')} holds the label {labels.max()}; copy it again")
        images = torch.from_numpy(pixels)[:, None]
        if self.form.size is not None:
            images = resize(images, self.form.size)
        if self.form.color == "rgb":
            images = images.expand(-1, 3, -1, -1).contiguous()
        return ArrayData(images, torch.from_numpy(labels.astype(np.int64)), CLASSES, f"Fashion-MNIST {chosen}")


def _places(folder: Path) -> tuple[Path, ...]:
    return folder, folder / "fashion-mnist", folder / "FashionMNIST" / "raw", _SYSTEM


def _name(part: str, what: str) -> str:
    return f"{_FILES[part]}-{what}-idx{3 if what == 'images' else 1}-ubyte.gz"


def _idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The bytes of an IDX file of that shape; never more is unpacked than it should hold."""
    header = b"\0\0\x08" + bytes([len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    size = int(np.prod(shape))
    try:
        with open_regular(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            begin, content, rest = file.read(len(header)), file.read(size), file.read(1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read ({error}); copy it again") from None
    if begin != header or len(content) != size or rest:
        raise DataError(f"{path} is not the file of Fashion-MNIST, which holds bytes of shape {shape}; copy it again")
    return np.frombuffer(content, np.uint8).reshape(shape).copy()
