"""NPZ files of predictions: named arrays, read block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.tables import BLOCK_ROWS, HEAD_ROWS, Table, TablePart
from calibrant.files.npz_arrays import BLOCK_BYTES, NpzArray, array_names, open_npz


class NpzTable(Table):
    """The arrays of an NPZ file, (n,) or (n, C), as columns."""

    def __init__(self, path: Path) -> None:
        self.path, self.where, self.stem = path, str(path), path.stem
        with open_npz(path) as archive:
            self.names = tuple(array_names(archive))
        if not self.names:
            raise InputError(f"{path} holds no arrays (no entry ends in .npy); write it again with numpy.savez")
        self.checked_names()

    def parts(
        self, wanted: Sequence[str], numbers: Sequence[str], labels: Sequence[str], loose: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Blocks of at most 131,072 rows, and of 64 MB per array."""
        with open_npz(self.path) as archive:
            members = [NpzArray.of(archive, self.path, name).check_rows() for name in wanted]
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
        with open_npz(self.path) as archive:
            for name in wanted:
                with suppress(ValueError):  # it matters only if it is used, and then it is refused
                    member = NpzArray.of(archive, self.path, name).check_rows()
                    size = max(1, min(HEAD_ROWS, BLOCK_BYTES // member.width))
                    found[name] = next(member.blocks(archive, size), np.empty(0))
        return found
