"""Files of a data set by name, from a folder or straight out of a tar archive, in memory and without unpacking."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from calibrant.data.arrays import DataError


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
        with location.open("rb") if location.suffix == ".tar" else gzip.open(location, "rb") as stream:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    name = member.name.rsplit("/", 1)[-1]
                    if member.isfile() and wanted(name):
                        file = archive.extractfile(member)
                        assert file is not None  # only links and folders have none
                        yield name, file.read()
            while stream.read(2**20):  # up to the checksum at the end, which tells whether all of it was right
                pass
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"archive {location} is cut short or damaged ({error}); download it again") from None


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
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check that it exists and may be read") from None
