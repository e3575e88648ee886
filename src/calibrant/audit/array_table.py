"""Arrays in memory as a table: NumPy arrays, lists, tensors, Series, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.tables import BLOCK_ROWS, HEAD_ROWS, Table, TablePart


class ArrayTable(Table):
    """Arrays (n,) or (n, C) by name; they are not copied."""

    def __init__(self, columns: Mapping[str, Any], name: str = "table") -> None:
        self.columns = {str(key): as_array(str(key), value) for key, value in columns.items()}
        self.where, self.stem, self.names = f"the {name}", name, tuple(self.columns)

    def parts(self, wanted: Sequence[str], numbers: Sequence[str], labels: Sequence[str]) -> Iterator[TablePart]:
        """Slices of 131,072 rows."""
        chosen = {name: self.columns[name] for name in wanted}
        if len(set(map(len, chosen.values()))) > 1:
            lengths = ", ".join(f"{name} {len(values)}" for name, values in chosen.items())
            raise InputError(f"{self.where} holds arrays of different lengths: {lengths}")
        total = len(chosen[wanted[0]])
        for start in range(0, total, BLOCK_ROWS):
            part = {name: values[start : start + BLOCK_ROWS] for name, values in chosen.items()}
            size = min(BLOCK_ROWS, total - start)
            yield TablePart(part, np.arange(size), size, (start + size) / total)

    def head(self, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The first rows."""
        return {name: self.columns[name][:HEAD_ROWS] for name in wanted}


def as_array(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array (n,) or (n, C): a tensor is detached, and what is no row of numbers or texts is refused."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(f"{name} is a masked array with masked entries; leave these rows out")
    try:
        result = np.asarray(value)
    except (ValueError, TypeError, RuntimeError):
        raise InputError(f"{name} must be rectangular: its rows have different lengths") from None
    if result.ndim not in (1, 2):
        raise InputError(f"{name} must have one entry or one row for each input, not shape {result.shape}")
    return result
