"""What a table says about how sure the system was, as a confidence and, where it says so much, probabilities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError

ForecastKind = Literal["confidence", "probabilities", "logits", "score"]
KINDS: tuple[ForecastKind, ...] = ("confidence", "probabilities", "logits", "score")
ROUNDING = 1e-3
"""How far the probabilities of a row may be from summing to 1, however many digits they have."""
MOST_ROUNDING = 0.05
"""How far they may be at most: where few digits of many classes lose more, the confidence would be off by as much."""
FEWEST_DIGITS, MOST_DIGITS = 2, 6
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

    def read(self, columns: Mapping[str, NDArray[Any]], where: str, rows: NDArray[np.int64]) -> Statement:
        """What these `rows` of a table say."""
        values = self._values(columns, where)
        if self.kind == "confidence":
            return Statement(self._unit(values, where, rows))
        if self.kind == "logits":
            logits = _finite(two_columns(values, 0.0), where, self.columns[0], rows)
            return _largest(softmax(logits))._replace(logits=logits)
        unit = self._unit(values, where, rows)
        if self.kind == "score":
            unit = unit[:, 0] if unit.ndim == 2 else unit
            return _largest(np.stack([1 - unit, unit], axis=1))
        return self._whole(unit, where, rows)

    def _whole(self, unit: NDArray[Any], where: str, rows: NDArray[np.int64]) -> Statement:
        """Probabilities that sum to 1 but for their rounding, which is divided out if it reaches 1e-3 in any row."""
        total = unit.sum(1)
        off = np.abs(total - 1)
        worst = int(off.argmax())
        if off[worst] < ROUNDING - RANGE:
            return _largest(unit)
        allowed = rounding(unit)
        if off[worst] > min(allowed, MOST_ROUNDING) + RANGE:
            found = f"in row {rows[worst]} they sum to {float(total[worst]):.4g}"
            if off[worst] <= allowed + RANGE:
                raise InputError(f"{where} has probabilities with too few digits: {found}; write them with more digits")
            raise InputError(
                f"{where} has probabilities that do not sum to 1: {found}; write the softmax of all classes, or name"
                " logits with --logits"
            )
        moved = off > RANGE
        unit = np.where(moved[:, None], unit / total[:, None], unit)
        return _largest(unit)._replace(divided=int(moved.sum()))

    def _values(self, columns: Mapping[str, NDArray[Any]], where: str) -> NDArray[Any]:
        parts = [from_percent_signs(columns[name], percent=self.percent) for name in self.columns]
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
        shown = self.columns[0] if len(self.columns) == 1 else ",".join(self.columns)
        if low >= 0 and 1 < high <= 100 and not self.percent:
            hint = "; if these are percentages, give --percent (in Python, percent=True)"
        elif self.kind == "confidence":
            hint = f"; if these are decision values or log odds of one of two classes, give --logits {shown} --positive"
            hint += " CLASS"
        else:
            hint = f"; if these are logits, give --logits {shown}"
        raise InputError(f"{where}: {name} must lie in [0, 1]; it reaches from {low:g} to {high:g}{hint}")


class Statement(NamedTuple):
    """Confidence (n,) and, where they are told, probabilities and logits (n, C) of some rows.

    `divided` is how many rows of probabilities were divided by their sum, because rounding had moved it.
    """

    confidence: NDArray[Any]
    probabilities: NDArray[Any] | None = None
    logits: NDArray[Any] | None = None
    divided: int = 0


def rounding(values: NDArray[Any]) -> float:
    """How far the rows of `values` (n, C) may be from summing to 1: C roundings of half of the last digit written.

    At least 1e-3; of numbers with one digit, or with more than six, no more than that.

    >>> rounding(np.array([[0.333, 0.333, 0.335]])), rounding(np.array([[0.5, 0.4, 0.0]]))
    (0.0015, 0.001)
    """
    for digits in range(1, MOST_DIGITS + 1):
        shifted = values.astype(np.float64) * 10.0**digits
        close = 4 * float(np.finfo(values.dtype).eps) * 10.0**digits
        if close > _CLOSEST:
            return ROUNDING
        if (np.abs(shifted - np.rint(shifted)) <= close).all():
            return max(values.shape[1] / 2 * 10.0**-digits, ROUNDING) if digits >= FEWEST_DIGITS else ROUNDING
    return ROUNDING


def from_percent_signs(values: NDArray[Any], *, percent: bool) -> NDArray[Any]:
    """Texts such as `97.5%` as fractions, or as the numbers before the sign if all are told to be percentages.

    What is not text, or does not begin with such a text, is returned as it is; a text without a sign in the midst of
    others becomes NaN.

    >>> from_percent_signs(np.array(["97.5%", "8 %"], object), percent=False)
    array([0.975, 0.08 ])
    """
    if values.dtype.kind not in "OUS" or values.ndim > 1 or not len(values) or not _PERCENT.match(str(values[0])):
        return values
    known = {text: _PERCENT.match(str(text)) for text in set(values.tolist())}
    found = {text: float(one[1].replace(",", ".")) if one else np.nan for text, one in known.items()}
    numbers = np.array([found[text] for text in values.tolist()], np.float64)
    return numbers if percent else numbers / 100


_CLOSEST = 0.05  # as a share of the last digit: a float16 has not enough of them to tell
_PERCENT = re.compile(r"^\s*([-+]?(?:\d+[.,]?\d*|[.,]\d+))\s*%\s*$")


def softmax(logits: NDArray[Any]) -> NDArray[Any]:
    """exp(z_c) / sum_k exp(z_k) of each row, in float64.

    >>> softmax(np.array([[0.0, np.log(3.0)]]))
    array([[0.25, 0.75]])
    """
    shifted = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    result: NDArray[Any] = shifted / shifted.sum(axis=1, keepdims=True)
    return result


def _largest(probabilities: NDArray[Any]) -> Statement:
    return Statement(np.minimum(probabilities.max(axis=1), 1), probabilities)


def two_columns(values: NDArray[Any], other: float) -> NDArray[Any]:
    """Rows of one number as rows of two, the first being `other`."""
    values = values[:, None] if values.ndim == 1 else values
    return np.concatenate([np.full_like(values, other), values], axis=1) if values.shape[1] == 1 else values


def _finite(values: NDArray[Any], where: str, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
    bad = ~np.isfinite(values)
    if bad.any():
        row = rows[np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))[0]]
        raise InputError(f"{where}: {name} holds NaN or infinity in row {row}; fill it in or remove the row")
    return values
