"""NPZ files: named arrays in a zip file, read without pickle, whole or in batches of rows."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import PARTS, Source
from calibrant.data.convert import as_inputs, encode_labels
from calibrant.slots import register

INPUTS = ("inputs", "x", "X", "images", "image", "data", "features", "arr_0")
LABELS = ("labels", "label", "y", "Y", "targets", "target", "arr_1")


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file at `path`; whatever fails while it is read becomes one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path} is not a whole NPZ file ({error}); write it again with numpy.savez") from None


def keys_of(archive: zipfile.ZipFile) -> list[str]:
    """The names of the arrays in `archive`."""
    return [name.removesuffix(".npy") for name in archive.namelist()]


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
        keys = keys_of(archive)
    return all(_find(keys, INPUTS, part) is not None for part in ("train", "test"))


def _whole(archive: zipfile.ZipFile, path: Path, key: str) -> NDArray[Any]:
    try:
        with archive.open(f"{key}.npy") as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        raise DataError(
            f"{path} holds an array {key!r} that cannot be read ({error});"
            " save plain numbers, and names with labels.astype(str)"
        ) from None
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"{path} holds no rows in {key!r}; write it again")
    return array


def blocks_of(archive: zipfile.ZipFile, path: Path, key: str, rows: int) -> Iterator[NDArray[Any]]:
    """The array `key` in blocks of at most `rows` rows, each read from the file when it is asked for."""
    with archive.open(f"{key}.npy") as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = read(stream)
        except ValueError as error:
            raise DataError(f"{path} holds a damaged array {key!r} ({error}); write it again") from None
        if (
            by_columns or dtype.hasobject or not shape
        ):  # no rows to be had one after the other: take or refuse the whole
            whole = _whole(archive, path, key)
            yield from (whole[start : start + rows] for start in range(0, len(whole), rows))
            return
        width = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        for start in range(0, shape[0], rows):
            count = min(rows, shape[0] - start)
            content = stream.read(count * width)
            if len(content) != count * width:
                raise DataError(f"{path} is cut short in {key!r}; write it again")
            yield np.frombuffer(content, dtype).reshape(count, *shape[1:])


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
    stems, keys = LABELS if chosen is None else (chosen,), keys_of(archive)
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
            key = _inputs_key(keys_of(archive), path, part, self.inputs)
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
                key = _inputs_key(keys_of(archive), path, name, self.inputs)
                for block in blocks_of(archive, path, key, batch_rows):
                    ids = [str(row + index) for index in range(len(block))]
                    yield ids, as_inputs(block, f"{path}:{key}", self.layout)
                    row += len(block)
