"""What a table says about how sure the system was, as a confidence and, where it says so much, probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError

ForecastKind = Literal["confidence", "probabilities", "logits", "score"]
KINDS: tuple[ForecastKind, ...] = ("confidence", "probabilities", "logits", "score")
ROUNDING = 1e-3
"""How far the probabilities of a row may be from summing to 1."""
RANGE = 1e-6
"""How far rounding may lift a probability above 1."""


@dataclass(frozen=True)
class Forecast:
    """The columns that say how sure the system was, and what they hold.

    Attributes:
        kind: "confidence", of the predicted class; "probabilities" or "logits" of all classes; "score", the
            probability of the positive one of two classes.
        columns: one, or one for each class; a single one of probabilities or logits holds rows of them, except that a
            single logit per row is the log odds of the positive class.
        classes: their names in the order of `columns`; with a score the negative class, then the positive one.
        percent: whether the numbers are percentages.
    """

    kind: ForecastKind
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    percent: bool = False

    @property
    def binary(self) -> bool:
        """Whether it is about the positive one of two classes, in one number per row."""
        return self.kind == "score" or (self.kind == "logits" and len(self.classes) == 2 and len(self.columns) == 1)

    def read(self, columns: Mapping[str, NDArray[Any]], where: str, rows: NDArray[np.int64]) -> _Read:
        """Confidence (n,), probabilities (n, C) and logits (n, C), where they are told, of these `rows` of a table."""
        values = self._values(columns, where)
        if self.kind == "confidence":
            return self._unit(values, where, rows), None, None
        if self.kind == "logits":
            logits = _finite(_two(values, 0.0), where, self.columns[0], rows)
            return (*_largest(softmax(logits))[:2], logits)
        unit = self._unit(values, where, rows)
        if self.kind == "score":
            unit = unit[:, 0] if unit.ndim == 2 else unit
            return _largest(np.stack([1 - unit, unit], axis=1))
        off = np.abs(unit.sum(1) - 1)
        if (off > ROUNDING).any():
            worst = int(off.argmax())
            raise InputError(
                f"{where} has probabilities that do not sum to 1: in row {rows[worst]} they sum to"
                f" {float(unit[worst].sum()):.4g}; write the softmax of all classes, or name logits with --logits"
            )
        return _largest(unit)

    def _values(self, columns: Mapping[str, NDArray[Any]], where: str) -> NDArray[Any]:
        parts = [columns[name] for name in self.columns]
        for name, part in zip(self.columns, parts):
            dims = (1, 2) if self.kind in ("logits", "score") else (1,) if self.kind == "confidence" else (1, 2)
            if part.dtype.kind not in "fiu" or part.ndim not in dims:
                raise InputError(f"{where}: column {name!r} must hold numbers, not {part.dtype} {part.shape[1:] or ''}")
        values = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
        return values if values.dtype.kind == "f" else values.astype(np.float64)

    def _unit(self, values: NDArray[Any], where: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """`values` as fractions, refused outside [0, 1] with what they may be instead."""
        name = self.kind if len(self.columns) == 1 else "probabilities"
        _finite(values, where, name, rows)
        values = values / 100 if self.percent else values
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        if low >= -RANGE and high <= 1 + RANGE:
            return values if low >= 0 and high <= 1 else np.clip(values, 0, 1)
        hint = ""
        if low >= 0 and 1 < high <= 100 and not self.percent:
            hint = "; if these are percentages, give --percent (in Python, percent=True)"
        elif self.kind in ("probabilities", "score"):
            shown = self.columns[0] if len(self.columns) == 1 else ",".join(self.columns)
            hint = f"; if these are logits, give --logits {shown}"
        raise InputError(f"{where}: {name} must lie in [0, 1]; it reaches from {low:g} to {high:g}{hint}")


_Read = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """exp(z_c) / sum_k exp(z_k) of each row, in float64.

    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    result: NDArray[Any] = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def _largest(probabilities: NDArray[Any]) -> _Read:
    return np.minimum(probabilities.max(axis=1), 1), probabilities, None


def _two(values: NDArray[Any], other: float) -> NDArray[Any]:
    """Rows of one number as rows of two, the first being `other`."""
    values = values[:, None] if values.ndim == 1 else values
    return np.concatenate([np.full_like(values, other), values], axis=1) if values.shape[1] == 1 else values


def _finite(values: NDArray[Any], where: str, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    bad = ~np.isfinite(values)
    if bad.any():
        row = rows[np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))[0]]
        raise InputError(f"{where}: {name} holds NaN or infinity in row {row}; fill it in or remove the row")
    return values
