"""NPZ files: named arrays in a zip file, read block by block, without pickle; what a header declares is not trusted."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.tables import BLOCK_ROWS, HEAD_ROWS, Table, TablePart

BLOCK_BYTES = 2**26
WHOLE_BYTES = 2**30
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What NumPy's reader of headers is known to raise for damaged ones.
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, SyntaxError, RecursionError, MemoryError, TokenError)


class NpzTable(Table):
    """The arrays of an NPZ file, (n,) or (n, C), as columns."""

    def __init__(self, path: Path) -> None:
        self.path, self.where, self.stem = path, str(path), path.stem
        with _opened(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".npy")]
        if not names:
            raise InputError(f"{path} holds no arrays (no entry ends in .npy); write it again with numpy.savez")
        self.names = tuple(name.removesuffix(".npy") for name in names)
        self.checked_names()

    def parts(self, wanted: Sequence[str], numbers: Sequence[str], labels: Sequence[str]) -> Iterator[TablePart]:
        """Blocks of at most 131,072 rows, and of 64 MB per array."""
        with _opened(self.path) as archive:
            members = [_Member.of(archive, self.path, name) for name in wanted]
            if len({member.rows for member in members}) > 1:
                lengths = ", ".join(f"{member.name} {member.rows}" for member in members)
                raise InputError(f"{self.path} holds arrays of different lengths: {lengths}")
            total = members[0].rows
            size = max(1, min(BLOCK_ROWS, *(BLOCK_BYTES // member.width for member in members)))
            done = 0
            for blocks in zip(*(member.blocks(archive, size) for member in members), strict=True):
                done += len(blocks[0])
                yield TablePart(dict(zip(wanted, blocks)), np.arange(len(blocks[0])), len(blocks[0]), done / total)

    def head(self, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The first rows of the arrays that can be read."""
        found = {}
        with _opened(self.path) as archive:
            for name in wanted:
                with suppress(ValueError):  # it matters only if it is used, and then it is refused
                    member = _Member.of(archive, self.path, name)
                    size = max(1, min(HEAD_ROWS, BLOCK_BYTES // member.width))
                    found[name] = next(member.blocks(archive, size), np.empty(0))
        return found


@dataclass(frozen=True)
class _Member:
    """What the header of an array says, after a comparison with the size of what follows it."""

    path: Path
    name: str
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, archive: zipfile.ZipFile, path: Path, name: str) -> _Member:
        with archive.open(f"{name}.npy") as stream:
            shape, by_columns, dtype = _header(stream, path, name)
            content = archive.getinfo(f"{name}.npy").file_size - stream.tell()
        if dtype.hasobject:
            raise InputError(
                f"{path} holds Python objects in {name!r}, which are not read;"
                " save plain numbers, and names with labels.astype(str)"
            )
        width = math.prod(shape[1:]) * dtype.itemsize
        sound = shape and min(shape) >= 0 and 0 < width <= BLOCK_BYTES
        if not sound or shape[0] * width != content:
            raise InputError(
                f"{path} holds a damaged array {name!r}: its header says shape {shape} of {dtype},"
                f" but {content} bytes follow; write it again"
            )
        return cls(path, name, shape, by_columns and len(shape) > 1, dtype)

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def blocks(self, archive: zipfile.ZipFile, rows: int) -> Iterator[NDArray[Any]]:
        """The array in blocks of `rows` rows; one that is stored by columns is taken whole, up to 1 GB."""
        if self.by_columns and self.rows * self.width > WHOLE_BYTES:
            raise InputError(
                f"{self.path} holds {self.name!r} column by column, in more than 1 GB;"
                " save numpy.ascontiguousarray of it, which can be read in blocks"
            )
        with archive.open(f"{self.name}.npy") as stream:
            _header(stream, self.path, self.name)
            if self.by_columns:
                whole = self._read(stream, self.rows).reshape(self.shape, order="F")
                yield from (whole[start : start + rows] for start in range(0, self.rows, rows))
                return
            for start in range(0, self.rows, rows):
                count = min(rows, self.rows - start)
                yield self._read(stream, count).reshape(count, *self.shape[1:])

    def _read(self, stream: IO[bytes], rows: int) -> NDArray[Any]:
        content = stream.read(rows * self.width)
        if len(content) != rows * self.width:
            raise InputError(f"{self.path} is cut short in {self.name!r}; write it again")
        return np.frombuffer(content, self.dtype)


def _header(stream: IO[bytes], path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_columns, dtype = _HEADERS[min(version, (2, 0))](stream)
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} holds a damaged array {name!r} ({reason}); write it again") from None
    return shape, by_columns, dtype


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip file at `path`; whatever fails while it is read becomes one sentence."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{path} is not a whole NPZ file ({error}); write it again with numpy.savez") from None
