"""Arrays in NPZ files, read whole or in blocks of rows, without pickle; what a header declares is not trusted."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.files import open_regular
from calibrant.files.packing import check_packing

BLOCK_BYTES = 2**26
WHOLE_BYTES = 2**30
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What Python's reader of zip files raises for damaged ones; of names that are no text, the last.
_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, UnicodeDecodeError)
# What NumPy's reader of headers is known to raise for damaged ones.
_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, SyntaxError, RecursionError, MemoryError, TokenError)


@contextmanager
def open_npz(path: str | Path) -> Iterator[zipfile.ZipFile]:
    """The zip file at `path`; whatever fails while it is read becomes one sentence.

    Refused if all members together unpack to more than 1 GB and to more than 200 times the size of the file.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
            check_packing(path, os.fstat(file.fileno()).st_size, unpacked, "save it uncompressed with numpy.savez")
            yield archive
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; check the path") from None
    except _BROKEN_ZIP as error:
        raise InputError(f"{path} is not a whole NPZ file ({error}); write it again with numpy.savez") from None


def array_names(archive: zipfile.ZipFile) -> list[str]:
    """The names of the arrays in `archive`; entries that are not arrays are left out."""
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


@dataclass(frozen=True)
class NpzArray:
    """What the header of an array says, after a comparison with the size of what follows it."""

    path: Path
    name: str
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, archive: zipfile.ZipFile, path: str | Path, name: str) -> NpzArray:
        """The array `name` of `archive`, which was opened at `path`; its values are not read yet."""
        with archive.open(f"{name}.npy") as stream:
            shape, by_columns, dtype = _header(stream, path, name)
            content = archive.getinfo(f"{name}.npy").file_size - stream.tell()
        if dtype.hasobject:
            raise InputError(
                f"{path} holds Python objects in {name!r}, which are not read;"
                " save plain numbers, and names with labels.astype(str)"
            )
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != content:
            raise InputError(
                f"{path} holds a damaged array {name!r}: its header says shape {shape} of {dtype},"
                f" but {content} bytes follow; write it again"
            )
        return cls(Path(path), name, shape, by_columns and len(shape) > 1, dtype)

    @property
    def rows(self) -> int:
        """Rows; a single value counts as one."""
        return self.shape[0] if self.shape else 1

    @property
    def width(self) -> int:
        """Bytes of a row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def check_rows(self) -> NpzArray:
        """The array itself; refused if it has no rows, or rows of nothing."""
        if not self.shape or not self.rows or not self.width:
            raise InputError(f"{self.path} holds no rows in {self.name!r}, of shape {self.shape}; write it again")
        return self

    def whole(self, archive: zipfile.ZipFile) -> NDArray[Any]:
        """All values, up to what the file holds."""
        with archive.open(f"{self.name}.npy") as stream:
            _header(stream, self.path, self.name)
            order: Any = "F" if self.by_columns else "C"
            return self._read(stream, self.rows).reshape(self.shape, order=order)

    def blocks(self, archive: zipfile.ZipFile, rows: int) -> Iterator[NDArray[Any]]:
        """The array in blocks of `rows` rows; one that is stored by columns is taken whole, up to 1 GB."""
        if self.by_columns:
            if self.rows * self.width > WHOLE_BYTES:
                raise InputError(
                    f"{self.path} holds {self.name!r} column by column, in more than 1 GB;"
                    " save numpy.ascontiguousarray of it, which can be read in blocks"
                )
            values = self.whole(archive)
            yield from (values[start : start + rows] for start in range(0, self.rows, rows))
            return
        with archive.open(f"{self.name}.npy") as stream:
            _header(stream, self.path, self.name)
            for start in range(0, self.rows, rows):
                count = min(rows, self.rows - start)
                yield self._read(stream, count).reshape(count, *self.shape[1:])

    def _read(self, stream: IO[bytes], rows: int) -> NDArray[Any]:
        wanted = rows * self.width
        content = stream.read(wanted)
        if len(content) != wanted:
            raise InputError(f"{self.path} is cut short in {self.name!r}; write it again")
        return np.frombuffer(content, self.dtype)


def _header(stream: IO[bytes], path: str | Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(stream)
        shape, by_columns, dtype = _HEADERS[min(version, (2, 0))](stream)
    except _UNREADABLE as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} holds a damaged array {name!r} ({reason}); write it again") from None
    return shape, by_columns, dtype
