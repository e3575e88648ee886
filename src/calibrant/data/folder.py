"""Image folders: a subfolder per class, or images without labels; parts in subfolders `train` and `test`, if any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import Source
from calibrant.data.images import SUFFIXES, ImageForm, decode, stack
from calibrant.files import is_text
from calibrant.slots import register


def _images(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def has_parts(path: Path) -> bool:
    """Whether the folder is divided into `train` and `test`."""
    return (path / "train").is_dir() and (path / "test").is_dir()


def roots(path: Path, part: str | None) -> list[Path]:
    """The folders that hold `part`; None means everything."""
    if not path.exists():
        raise DataError(f"folder {path} does not exist; check the path")
    if not has_parts(path):
        return [path]
    return [path / name for name in ("train", "test") if part in (None, name)]


def files(root: Path) -> tuple[list[Path], tuple[str, ...] | None]:
    """The image files in `root`, class by class, and the class names; None for images without labels."""
    if not root.is_dir():
        return [root], None
    direct, classes = _images(root), _subfolders(root)
    by_class = {folder.name: _images(folder) for folder in classes}
    for path in (*classes, *direct, *(image for images in by_class.values() for image in images)):
        if not is_text(path.name):
            raise DataError(f"folder {path.parent} holds {path.name!a}, a name that is no UTF-8 text; rename it")
    if direct and any(by_class.values()):
        raise DataError(f"folder {root} holds both images and subfolders of images; keep one or the other")
    if not direct and not any(by_class.values()):
        raise DataError(f"folder {root} holds no images, neither directly nor in subfolders; check the path")
    if direct:
        return direct, None
    empty = next((name for name, images in by_class.items() if not images), None)
    if empty is not None:
        raise DataError(f"folder {root / empty} is a class without images; fill or remove it")
    return [path for name in by_class for path in by_class[name]], tuple(by_class)


@register("source", "folder")
class FolderSource(Source):
    """A folder of image files, or one image file."""

    spec = "folder:PATH?size=32"
    about = "images, a subfolder per class or none"
    parts = "in subfolders train and test, if both are there"

    def __init__(
        self,
        path: str,
        *,
        size: str | None = None,
        color: str | None = None,
        crop: str | None = None,
        interpolation: str | None = None,
    ) -> None:
        super().__init__(path)
        self.form = ImageForm.parse(size, color, crop, interpolation)

    @classmethod
    def claims(cls, path: Path) -> int:
        """Folders, and image files, if nothing more specific claims them."""
        return int(path.is_dir() or (path.suffix.lower() in SUFFIXES and path.exists()))

    def has_parts(self) -> bool:
        """Whether there are subfolders `train` and `test`."""
        return has_parts(self.path)

    def read(self, part: str | None) -> ArrayData:
        """All images of `part` in memory; classes are those of the training part where there are parts."""
        (root,) = roots(self.path, part)
        images, names = files(root)
        classes = files(self.path / "train")[1] if part == "test" else names
        pixels = stack([decode(image, str(image), self.form) for image in images], [str(image) for image in images])
        if names is None or classes is None:
            return ArrayData(pixels, None, None, str(self.path))
        unknown = next((name for name in names if name not in classes), None)
        if unknown is not None:
            train = self.path / "train"
            raise DataError(f"folder {root / unknown} is a class that {train} does not have; rename or remove it")
        labels = torch.tensor([classes.index(image.parent.name) for image in images])
        return ArrayData(pixels, labels, classes, str(self.path))

    def stream(self, part: str | None, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(relative paths, images), with no more than one batch in memory."""
        base = self.path.parent if self.path.is_file() else self.path
        images = [image for root in roots(self.path, part) for image in files(root)[0]]
        shape: tuple[int, ...] | None = None
        for start in range(0, len(images), batch_rows):
            batch = images[start : start + batch_rows]
            decoded = [decode(image, str(image), self.form) for image in batch]
            pixels = stack(decoded, [str(image) for image in batch], shape)
            shape = tuple(pixels.shape[1:])
            yield [image.relative_to(base).as_posix() for image in batch], pixels
