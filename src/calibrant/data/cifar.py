"""CIFAR-10 and CIFAR-100: the official archives or their unpacked folders, Python and binary versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calibrant.data.archives import is_archive, read_files
from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.unpickle import read_arrays

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarLayout:
    """How one published version is laid out: its files, and the bytes before the pixels in a binary record."""

    stem: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    labels: str = ""
    names: str = ""
    head: int = 0

    @property
    def archive(self) -> str:
        """The archive's file name."""
        return f"{self.stem}.tar.gz"


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

LAYOUTS: dict[int, tuple[CifarLayout, CifarLayout]] = {
    10: (
        CifarLayout(
            *("cifar-10-python", "cifar-10-batches-py", _BATCHES, ("test_batch",), "batches.meta"),
            labels="labels",
            names="label_names",
        ),
        CifarLayout(
            *(
                "cifar-10-binary",
                "cifar-10-batches-bin",
                tuple(f"{name}.bin" for name in _BATCHES),
                ("test_batch.bin",),
            ),
            meta="batches.meta.txt",
            head=1,
        ),
    ),
    100: (
        CifarLayout(
            *("cifar-100-python", "cifar-100-python", ("train",), ("test",), "meta"),
            labels="fine_labels",
            names="fine_label_names",
        ),
        CifarLayout(
            *("cifar-100-binary", "cifar-100-binary", ("train.bin",), ("test.bin",), "fine_label_names.txt"),
            head=2,
        ),
    ),
}


def locate(path: Path, classes: int) -> tuple[Path, CifarLayout] | None:
    """The folder or archive at or in `path` that holds CIFAR with `classes` classes, or None."""
    for layout in LAYOUTS[classes]:
        if is_archive(path) and path.name == layout.archive:
            return path, layout
        for folder in (path, path / layout.folder):
            if (folder / layout.train[0]).is_file() and (folder / layout.test[0]).is_file():
                return folder, layout
        if (path / layout.archive).is_file():
            return path / layout.archive, layout
    return None


def _unpickled(content: bytes, name: str, layout: CifarLayout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = read_arrays(content, name)
    for key in ("data", layout.labels):
        if key not in batch:
            raise DataError(f"{name} has no entry {key!r}; use the official file")
    return np.asarray(batch["data"]), np.asarray(batch[layout.labels], np.int64)


def _records(content: bytes, name: str, layout: CifarLayout) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    width = layout.head + PIXELS
    if not content or len(content) % width:
        raise DataError(f"{name} is cut short: {len(content)} bytes are not whole records of {width}; get it again")
    rows = np.frombuffer(content, np.uint8).reshape(-1, width)
    return rows[:, layout.head :], rows[:, layout.head - 1].astype(np.int64)


def _class_names(content: bytes | None, name: str, layout: CifarLayout) -> tuple[str, ...] | None:
    if content is None:
        return None
    if layout.head:
        return tuple(content.decode("ascii", "replace").split())
    names: Any = read_arrays(content, name).get(layout.names)
    return tuple(str(entry) for entry in names) if isinstance(names, list) else None


def read(path: Path, split: str, classes: int) -> ArrayData:
    """One part of CIFAR at `path`: the folder, its parent, or the archive."""
    found = locate(path, classes)
    if found is None:
        archives = " or ".join(layout.archive for layout in LAYOUTS[classes])
        raise DataError(f"CIFAR-{classes} is not at {path}; put {archives}, or its unpacked folder, there")
    location, layout = found
    parts = layout.train if split == "train" else layout.test
    files = read_files(location, parts, optional=(layout.meta,))
    parse = _records if layout.head else _unpickled
    rows, labels = zip(*(parse(files[part], f"{location}/{part}", layout) for part in parts))
    for part, pixels, index in zip(parts, rows, labels):
        if pixels.dtype != np.uint8 or pixels.shape != (len(index), PIXELS) or ((index < 0) | (index >= classes)).any():
            raise DataError(f"{location}/{part} does not hold images of CIFAR-{classes}; use the official file")
    names = _class_names(files.get(layout.meta), f"{location}/{layout.meta}", layout)
    return ArrayData(
        torch.from_numpy(np.concatenate(rows).reshape(-1, 3, 32, 32)),
        torch.from_numpy(np.concatenate(labels)),
        names if names is not None and len(names) == classes else None,
        f"CIFAR-{classes} {split}",
    )
