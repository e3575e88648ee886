"""How much a file may unpack to: a small one must not fill the memory."""

from __future__ import annotations

from pathlib import Path

from calibrant import InputError

WHOLE_BYTES = 2**30
MOST_PACKED = 200


def most_unpacked(packed: int) -> int:
    """The bytes that a file of `packed` bytes may stand for: 1 GB, or 200 times its size if that is more."""
    return max(WHOLE_BYTES, MOST_PACKED * packed)


def check_packing(path: str | Path, packed: int, unpacked: int, advice: str) -> None:
    """Refuse the file `path` of `packed` bytes if it stands for more than it may; `advice` says how to write it."""
    if unpacked > most_unpacked(packed):
        raise InputError(f"{path} unpacks {packed:,} bytes to {unpacked:,}, which is not believed; {advice}")
