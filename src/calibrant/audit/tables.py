"""Tables of predictions, block by block, whatever they are kept in: what all kinds of tables have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.predictions import Predictions

BLOCK_ROWS = 2**17
HEAD_ROWS = 1000


@dataclass(frozen=True)
class TablePart:
    """Some rows as they were read: their columns by name, which of `size` rows they are, and the share read so far."""

    columns: dict[str, NDArray[Any]]
    kept: NDArray[np.int64]
    size: int
    done: float


@dataclass(frozen=True)
class TableBlock:
    """Some rows that have labels: how many came before, their columns by name, and the share of the table read so far.

    `rows` (n,) says where they stand in the table; `left_out` is how many rows without a label were among them.
    """

    start: int
    columns: dict[str, NDArray[Any]]
    done: float
    rows: NDArray[np.int64]
    left_out: int = 0


class Table(ABC):
    """Predictions by column: a file, a frame, or arrays. `where` is what messages call it, `stem` its short name."""

    where: str
    stem: str
    names: tuple[str, ...]
    typed = True
    """Whether columns have types of their own; text has none until it is told which columns hold numbers."""
    record: Predictions | None = None
    """What the table was made of, where columns do not hold all of it."""

    @abstractmethod
    def parts(
        self, wanted: Sequence[str], numbers: Sequence[str], labels: Sequence[str], loose: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """The `wanted` columns; those in `numbers` must hold numbers; rows without one of `labels` may be missing.

        Columns in `loose` may have no value in some rows, which is NaN or None.
        """

    @abstractmethod
    def head(self, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The first rows of the `wanted` columns, at most 1,000; columns that cannot be read are missing."""

    def blocks(
        self,
        wanted: Sequence[str],
        numbers: Sequence[str] = (),
        labels: Sequence[str] = (),
        loose: Sequence[str] = (),
    ) -> Iterator[TableBlock]:
        """The `wanted` columns of all rows that have a value in every one of `labels`; arguments as of `parts`."""
        start = first = 0
        for part in self.parts(wanted, numbers, labels, loose):
            present = np.ones(len(part.kept), bool)
            for name in labels:
                present &= ~missing(part.columns[name])
            columns, rows = part.columns, first + part.kept
            if not present.all():
                columns, rows = {name: values[present] for name, values in columns.items()}, rows[present]
            yield TableBlock(start, {n: plain(v) for n, v in columns.items()}, part.done, rows, part.size - len(rows))
            start, first = start + len(rows), first + part.size

    def checked_names(self) -> None:
        """Refuse two columns of one name."""
        seen: set[str] = set()
        for name in self.names:
            if name and name in seen:
                raise InputError(f"{self.where} has two columns called {name!r}; rename or remove one of them")
            seen.add(name)


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,): whether there is nothing: NaN, None or an empty text.

    >>> missing(np.array(["a", "", None], object)), missing(np.array([1.0, np.nan]))
    (array([False,  True,  True]), array([False,  True]))
    """
    if values.dtype.kind == "f" and values.ndim == 1:
        return np.asarray(np.isnan(values))
    if values.dtype.kind in "US":
        return np.asarray(np.char.str_len(values) == 0)
    if values.dtype.kind == "O" and values.ndim == 1:
        return np.array([value is None or value == "" or value != value for value in values.tolist()], bool)
    return np.zeros(len(values), bool)


def plain(values: NDArray[Any]) -> NDArray[Any]:
    """`values` in the machine's own byte order and at most 64 bits, or a copy where memory may not be written."""
    if values.dtype.kind in "fc" and values.dtype.itemsize > 8 * (1 + (values.dtype.kind == "c")):
        values = values.astype(np.float64 if values.dtype.kind == "f" else np.complex128)
    if not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return values if values.flags.writeable else values.copy()
