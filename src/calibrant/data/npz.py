"""NPZ files: named arrays in a zip file, read without pickle, whole or in batches of rows."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import PARTS, Source
from calibrant.data.convert import as_inputs, encode_labels
from calibrant.files.npz_arrays import NpzArray, array_names, open_npz
from calibrant.slots import register

INPUTS = ("inputs", "x", "X", "images", "image", "data", "features", "arr_0")
LABELS = ("labels", "label", "y", "Y", "targets", "target", "arr_1")


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file at `path`; whatever is wrong with it or its arrays becomes one sentence."""
    try:
        with open_npz(path) as archive:
            yield archive
    except DataError:
        raise
    except ValueError as error:
        raise DataError(str(error)) from None


def _find(keys: list[str], stems: tuple[str, ...], part: str | None) -> str | None:
    """The first key that is one of `stems`, with the part's name before or after it where a part is asked for."""
    for stem in stems:
        for key in [stem] if part is None else [f"{stem}_{part}", f"{part}_{stem}"]:
            if key in keys:
                return key
    return None


def has_parts(path: Path) -> bool:
    """Whether there are inputs named for both parts, as in x_train and x_test."""
    with opened(path) as archive:
        keys = array_names(archive)
    return all(_find(keys, INPUTS, part) is not None for part in ("train", "test"))


def _whole(archive: zipfile.ZipFile, path: Path, key: str) -> NDArray[Any]:
    return NpzArray.of(archive, path, key).check_rows().whole(archive)


def _inputs_key(keys: list[str], path: Path, part: str | None, chosen: str | None) -> str:
    key = _find(keys, INPUTS if chosen is None else (chosen,), part)
    if key is None:
        wanted = f"array {chosen!r}" if chosen else f"array named {', '.join(INPUTS[:-1])}"
        raise DataError(f"{path} has no {wanted}; it has {', '.join(keys)}: name one with inputs=")
    return key


def _labels(
    archive: zipfile.ZipFile, path: Path, part: str | None, chosen: str | None
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """Labels of `part`; names are numbered over both parts, so that a class has one number everywhere."""
    stems, keys = LABELS if chosen is None else (chosen,), array_names(archive)
    key = _find(keys, stems, part)
    if key is None and chosen is not None:
        raise DataError(f"{path} has no array {chosen!r} of labels; it has {', '.join(keys)}")
    if key is None:
        return None, None
    values = _whole(archive, path, key)
    known = None
    if part is not None and values.dtype.kind in "US":
        every = [_find(keys, stems, name) for name in ("train", "test")]
        known = tuple(sorted({str(v) for k in every if k for v in _whole(archive, path, k).astype(str).tolist()}))
    labels, classes = encode_labels(values, f"{path}:{key}", known)
    return labels, classes


@register("source", "npz")
class NpzSource(Source):
    """An NPZ file; `inputs` and `labels` name its arrays if not by one of the usual names."""

    spec = "npz:FILE"
    about = "arrays inputs and labels"
    parts = "as x_train and x_test, if both are there"

    def __init__(
        self, path: str, *, inputs: str | None = None, labels: str | None = None, layout: str | None = None
    ) -> None:
        super().__init__(path)
        self.inputs, self.labels, self.layout = inputs, labels, layout

    @classmethod
    def claims(cls, path: Path) -> int:
        """Files that end in .npz."""
        return 2 * (path.suffix.lower() == ".npz")

    def has_parts(self) -> bool:
        """Whether there are inputs named for both parts."""
        return has_parts(self.path)

    def read(self, part: str | None) -> ArrayData:
        """The arrays of `part` in memory."""
        path = self.path
        with opened(path) as archive:
            key = _inputs_key(array_names(archive), path, part, self.inputs)
            values = as_inputs(_whole(archive, path, key), f"{path}:{key}", self.layout)
            target, classes = _labels(archive, path, part, self.labels)
        if target is not None and len(target) != len(values):
            raise DataError(f"{path} has {len(values)} inputs but {len(target)} labels; write it again")
        return ArrayData(values, target, classes, str(path))

    def stream(self, part: str | None, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(row numbers, inputs), with no more than one batch in memory."""
        path = self.path
        parts = (part,) if part is not None else PARTS if has_parts(path) else (None,)
        row = 0
        with opened(path) as archive:
            for name in parts:
                key = _inputs_key(array_names(archive), path, name, self.inputs)
                for block in NpzArray.of(archive, path, key).check_rows().blocks(archive, batch_rows):
                    ids = [str(row + index) for index in range(len(block))]
                    yield ids, as_inputs(block, f"{path}:{key}", self.layout)
                    row += len(block)
