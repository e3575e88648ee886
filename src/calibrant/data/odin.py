"""TinyImageNet (resized) and LSUN (resized): 10,000 images each of 32 x 32 pixels, in the layout of the ODIN release.

The images have no labels and no fixed parts. They are ordered by the number in the file name, so that index i is file
number i, which is how published splits name them.
"""

from __future__ import annotations

import re
from pathlib import Path

from calibrant.data.archives import is_archive, iterate
from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.images import SUFFIXES, ImageForm, decode, stack


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES and not name.startswith(".")


def locate(path: Path, folder: str) -> Path | None:
    """The folder with the images, named `folder`, or its archive, at or in `path`; None if there is neither."""
    if is_archive(path):
        return path
    for candidate in (path / folder / folder, path / folder, path):
        if candidate.is_dir() and any(_is_image(entry.name) for entry in candidate.iterdir()):
            return candidate
    archive = path / f"{folder}.tar.gz"
    return archive if archive.is_file() else None


def file_number(name: str) -> int:
    """The last number in a file's name.

    >>> file_number("test_0017.jpg")
    17
    """
    digits = re.findall(r"\d+", Path(name).stem)
    if not digits:
        raise DataError(f"image {name} has no number in its name, by which the set is ordered; use the original names")
    return int(digits[-1])


def read(path: Path, folder: str, title: str) -> ArrayData:
    """The whole set called `title` at `path`: the folder, a parent of it, or the archive."""
    location = locate(path, folder)
    if location is None:
        raise DataError(f"{title} is not at {path}; put {folder}.tar.gz, or the folder {folder}, there")
    files = sorted(iterate(location, _is_image), key=lambda item: file_number(item[0]))
    if not files:
        raise DataError(f"{location} holds no images; use {folder}.tar.gz of the ODIN release")
    names = [name for name, _ in files]
    numbers = [file_number(name) for name in names]
    for expected, number in enumerate(numbers, start=numbers[0]):
        if number != expected:
            raise DataError(f"{location} lacks image number {expected}; unpack the archive again")
    images = [decode(content, f"{location}/{name}", ImageForm()) for name, content in files]
    return ArrayData(stack(images, names), None, None, title)
