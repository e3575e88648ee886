"""Frames with categories as numbers: one column per number, and per category one for each of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.files import RunError, read_json, write_json

COLUMNS = "columns.json"
_FORMAT = "calibrant.columns"
_MOST = 1000  # values of a category
_FEW = 20  # different values that no identifier has less than
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class FrameEncoder:
    """The columns of a frame by name, each with the values of its category; None for a column of numbers.

    A category with the values v_1, ..., v_m becomes m columns, of which the j-th is 1 where the value is v_j and 0
    elsewhere. A missing value is a value of its own if there was one in the training data. A value that was not in the
    training data is 0 in all of them.

    >>> import pandas as pd
    >>> encoder = FrameEncoder.learn(pd.DataFrame({"age": [30, 40], "plan": ["free", "paid"]}))
    >>> encoder.names
    ('age', 'plan=free', 'plan=paid')
    >>> encoder(pd.DataFrame({"age": [50, 60], "plan": ["paid", "trial"]})).tolist()
    [[50.0, 0.0, 1.0], [60.0, 0.0, 0.0]]
    """

    columns: Mapping[str, tuple[str, ...] | None]

    @classmethod
    def learn(cls, frame: Any) -> FrameEncoder:
        """What is in the columns of `frame`; one that cannot be used is refused by its name."""
        found: dict[str, tuple[str, ...] | None] = {}
        for place, name in enumerate(map(str, frame.columns)):
            if name in found:
                raise InputError(f"X has two columns named {name!r}; rename one")
            found[name] = _categories(frame.iloc[:, place], name)
        return cls(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns."""
        return tuple(
            one
            for name, values in self.columns.items()
            for one in ((name,) if values is None else tuple(f"{name}={value}" for value in values))
        )

    def __call__(self, frame: Any, name: str = "X") -> NDArray[np.float32]:
        """`frame`, with the columns it was learned on in their order, as numbers (N, D)."""
        if list(map(str, frame.columns)) != list(self.columns):
            raise InputError(f"{name} must have the columns {', '.join(self.columns)}, in this order")
        blocks = [
            _numbers(frame.iloc[:, place], column)[:, None]
            if values is None
            else _one_hot(frame.iloc[:, place], values)
            for place, (column, values) in enumerate(self.columns.items())
        ]
        return np.concatenate(blocks, axis=1).astype(np.float32)

    def save(self, folder: str | Path) -> Path:
        """Write the columns as JSON to `columns.json` in `folder`, where a predictor may be."""
        path = Path(folder) / COLUMNS
        write_json(
            path, {"format": _FORMAT, "columns": [[n, None if v is None else list(v)] for n, v in self.columns.items()]}
        )
        return path

    @classmethod
    def load(cls, folder: str | Path) -> FrameEncoder:
        """What `save` wrote."""
        path = Path(folder) / COLUMNS
        if path.is_file() and path.stat().st_size > _MOST_BYTES:
            raise InputError(f"{path} is too large to hold the columns of a frame; save the classifier again")
        try:
            content = read_json(path)
            if content["format"] != _FORMAT:
                raise TypeError
            return cls(
                {str(name): None if values is None else tuple(map(str, values)) for name, values in content["columns"]}
            )
        except (RunError, LookupError, TypeError, ValueError, RecursionError):
            raise InputError(f"{path} does not hold the columns of a frame; save the classifier again") from None


def is_frame(X: Any) -> bool:
    """Whether `X` is a frame of pandas, or can become one."""
    return type(X).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow") and hasattr(X, "columns")


def as_frame(X: Any) -> Any:
    """A frame of pandas; those of Polars and tables of Arrow are converted."""
    return X.to_pandas() if hasattr(X, "to_pandas") else X


def _categories(column: Any, name: str) -> tuple[str, ...] | None:
    """The values of a category in sorted order; None for numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf":
        return None
    present = column[column.notna()]
    kinds = {type(value) for value in present}
    if kind not in "OUS" or not all(issubclass(one, (str, bool, int, float, np.generic)) for one in kinds):
        what = str(column.dtype) if kind not in "OUS" else next(iter(kinds)).__name__
        raise InputError(
            f"X has a column {name!r} of {what}, which is neither numbers nor a category; turn it into one of them, or"
            " leave it out"
        )
    if kinds and not any(issubclass(one, (str, bool, np.bool_)) for one in kinds) and not hasattr(column, "cat"):
        return None  # numbers as objects
    if len({issubclass(one, str) for one in kinds}) > 1:
        raise InputError(f"X has a column {name!r} that mixes text and numbers; convert it to one of them")
    values = sorted(set(_texts(column)))
    if len(values) > _MOST or (len(values) > _FEW and len(values) == len(column)):
        raise InputError(
            f"X has a column {name!r} with {len(values)} different values in {len(column)} rows, which looks like an"
            " identifier or free text; leave it out, or group its values"
        )
    return tuple(values)


def _texts(column: Any) -> list[str]:
    """Every value as text; a missing one as `(missing)`."""
    return [str(value) if there else "(missing)" for value, there in zip(column, column.notna())]


def _one_hot(column: Any, values: tuple[str, ...]) -> NDArray[np.float32]:
    place = {value: index for index, value in enumerate(values)}
    found = np.array([place.get(text, -1) for text in _texts(column)], dtype=np.int64)
    encoded: NDArray[np.float32] = (found[:, None] == np.arange(len(values))).astype(np.float32)
    return encoded


def _numbers(column: Any, name: str) -> NDArray[np.float32]:
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise InputError(
            f"X has text in the column {name!r}, which held numbers when the classifier was fitted"
        ) from None
    if not np.isfinite(values).all():
        row = int((~np.isfinite(values)).argmax())
        raise InputError(f"X holds NaN or infinity in row {row} of the column {name!r}; fill it in or remove the row")
    numbers: NDArray[np.float32] = values.astype(np.float32)
    return numbers
