"""Files of a data set by name, from a folder or straight out of a tar archive, in memory and without unpacking."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from calibrant.data.arrays import DataError
from calibrant.files import open_regular

MOST_BYTES = 2**31
"""What an archive may unpack to; the largest that is known, CIFAR, has 178 MB."""
_PIECE = 2**20


class _Bounded:
    """`stream` up to `MOST_BYTES`; beyond them an OSError."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.tell = stream, stream.tell

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes, piece by piece: as many as a header declares need not follow it."""
        left, pieces = self.within(size if size >= 0 else MOST_BYTES + 1, self.tell()), []
        while left and (piece := self.stream.read(min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def seek(self, position: int) -> int:
        """Go to `position`, by unpacking everything before it."""
        return self.stream.seek(self.within(position, 0))

    def within(self, size: int, start: int) -> int:
        """`size`, if that number of bytes from `start` on is within the bound."""
        if start + size > MOST_BYTES:
            raise OSError(f"it says that it unpacks to more than {MOST_BYTES // 2**30} GB")
        return size


def is_archive(path: Path) -> bool:
    """Whether `path` is a file named like a tar archive."""
    return path.name.endswith((".tar.gz", ".tgz", ".tar")) and path.is_file()


def iterate(location: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of every file whose base name is `wanted`, in a folder or in an archive (one pass)."""
    if not is_archive(location):
        for path in sorted(location.iterdir()):
            if path.is_file() and wanted(path.name):
                yield path.name, read_bytes(path)
        return
    try:
        with open_regular(location) as file, _unpacked(file, location) as unpacked:
            stream: Any = _Bounded(unpacked)
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    name = member.name.rsplit("/", 1)[-1]
                    if member.isfile() and wanted(name):
                        if member.issparse():
                            raise OSError("it holds a file with holes, as no data set does")
                        content = archive.extractfile(member)
                        assert content is not None  # only links and folders have none
                        stream.within(member.size, member.offset_data)
                        yield name, content.read()
            while stream.read(_PIECE):  # up to the checksum at the end, which tells whether all of it was right
                pass
    except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError, RecursionError) as error:
        # The last three come from the numbers in extended headers, and from thousands of those in a row.
        raise DataError(f"archive {location} is cut short or damaged ({error}); download it again") from None


def _unpacked(file: IO[bytes], location: Path) -> IO[bytes]:
    found: Any = file if location.suffix == ".tar" else gzip.GzipFile(fileobj=file)
    return found  # type: ignore[no-any-return]


def read_files(location: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, bytes]:
    """The contents of the files `names`, and of those `optional` that exist, in a folder or an archive."""
    found = dict(iterate(location, lambda name: name in names or name in optional))
    missing = [name for name in names if name not in found]
    if missing:
        raise DataError(f"{location} lacks {', '.join(missing)}; unpack the official archive again")
    return found


def read_bytes(path: Path) -> bytes:
    """The content of a file, with one sentence where that fails."""
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check that it exists and may be read") from None
