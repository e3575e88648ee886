"""Where a classifier is worse than elsewhere: slices of a table by its columns, with chance taken into account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.class_table import flat_record
from calibrant.audit.grouped import gap_interval, sums
from calibrant.metrics import Interval
from calibrant.metrics.arguments import confidence_and_correct
from calibrant.metrics.functional import Array, Indices, array
from calibrant.metrics.proportion import proportion

LEAST_ROWS = 30
GROUPS = 5
LEVEL = 0.05
_MISSING = "(missing)"


@dataclass(frozen=True)
class Slice:
    """The rows in which `column` is `value`: how many, their accuracy, mean confidence and the `gap` of the two.

    `shortfall` is the accuracy of all other rows less that of these. `p_value` is of the hypothesis that neither
    accuracy nor gap is worse here than elsewhere; `adjusted` is the same after Holm's correction for all slices that
    were tested, and the slice `stands_out` if that is below the level.
    """

    column: str
    value: str
    count: int
    accuracy: Interval
    confidence: float
    gap: Interval
    shortfall: float
    p_value: float
    adjusted: float
    stands_out: bool


@dataclass(frozen=True)
class SliceTable:
    """All slices, those that stand out first, then by how much is missing; and what can be said of them in `sentence`.

    `small` counts the slices that were left out because they have fewer than `least` rows.
    """

    slices: tuple[Slice, ...]
    small: int
    least: int
    sentence: str

    def records(self) -> list[dict[str, Any]]:
        """One flat dictionary per slice, for a frame."""
        return [flat_record(one) for one in self.slices]


def slices(
    columns: Mapping[str, Any], confidence: Any, correct: Any, *, least: int = LEAST_ROWS, groups: int = GROUPS,
    level: float = LEVEL,
) -> SliceTable:  # fmt: skip
    """Compare the rows of each value of each column with all other rows, the worst first.

    `columns` holds (n,) by name: text, truth values and numbers of up to 10 different values are taken as they are,
    other numbers in `groups` groups between their quantiles; missing values are a slice of their own. `confidence` (n,)
    in [0, 1], `correct` (n,).

    Each slice of at least `least` rows is tested twice against the rest: is its accuracy lower (the hypergeometric
    tail, as Fisher's exact test), and is its gap further from 0 (a normal test of the difference of mean residuals)?
    Its p-value is twice the smaller one. Of many slices some look bad by chance; Holm's method corrects for all of
    them, so that with probability 1 - `level` none stands out where none is worse.

    >>> light = ["day"] * 60 + ["night"] * 40
    >>> table = slices({"light": light}, [0.9] * 100, [1] * 58 + [0] * 2 + [1] * 20 + [0] * 20)
    >>> table.sentence
    'In 1 of 2 slices it is worse than elsewhere: light = night (40 rows) is right in 50.0 % and says 90.0 %.'
    """
    level_of, right = confidence_and_correct(confidence, correct)
    value = array(level_of)
    found, small = [], 0
    for name, (texts, place) in _grouped(columns, len(value), groups):
        kept, few = _column(name, texts, place, value, right, least)
        found += kept
        small += few
    adjusted = holm([one.p_value for one in found])
    judged = [replace(one, adjusted=p, stands_out=p < level) for one, p in zip(found, adjusted)]
    judged.sort(key=lambda one: (not one.stands_out, -_badness(one)))
    return SliceTable(tuple(judged), small, least, _sentence(judged, small, least))


def holm(p_values: list[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: below a level with at most that probability for any true hypothesis.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    result, last = [1.0] * len(p_values), 0.0
    for rank, position in enumerate(np.argsort(p_values, kind="stable").tolist()):
        last = max(last, min(1.0, (len(p_values) - rank) * p_values[position]))
        result[position] = last
    return result


def _column(
    name: str, texts: list[str], place: Indices, confidence: Array, right: Array, least: int
) -> tuple[list[Slice], int]:
    """The slices of one column that are large enough, not yet adjusted, and how many are not."""
    from scipy.stats import hypergeom, norm

    size, total, residual = len(texts), len(right), confidence - right
    count, hits, sure = sums(place, size), sums(place, size, right), sums(place, size, confidence)
    gaps, squares = sums(place, size, residual), sums(place, size, residual**2)
    doubt = sums(place, size, confidence * (1 - confidence))
    found = []
    for g in np.flatnonzero((count >= least) & (total - count >= least)).tolist():
        inside, outside = count[g], total - count[g]
        lower = float(hypergeom.cdf(hits[g], total, right.sum(), inside))
        means = gaps[g] / inside, (gaps.sum() - gaps[g]) / outside
        spread = _variance(squares[g], doubt[g], means[0], inside)
        spread += _variance(squares.sum() - squares[g], doubt.sum() - doubt[g], means[1], outside)
        further = abs(means[0]) > abs(means[1]) and spread > 0
        apart = 2 * float(norm.sf(abs(means[0] - means[1]) / np.sqrt(spread))) if further else 1.0
        shortfall = float((right.sum() - hits[g]) / outside - hits[g] / inside)
        accuracy, gap = proportion(hits[g], inside), gap_interval(gaps[g], squares[g], hits[g], inside)
        p_value = min(1.0, 2 * min(lower, apart))
        sure_here = float(sure[g] / inside)
        found.append(Slice(name, texts[g], int(inside), accuracy, sure_here, gap, shortfall, p_value, 1.0, False))
    return found, int((count < least).sum())


def _variance(squares: float, doubt: float, mean: float, count: float) -> float:
    """The variance of a mean residual; not below that of a calibrated system, which rare errors would hide."""
    return float(max(squares / count - mean**2, doubt / count) / count)


def _badness(one: Slice) -> float:
    return max(one.shortfall, abs(one.gap.estimate))


def _grouped(columns: Mapping[str, Any], rows: int, groups: int) -> Iterator[tuple[str, tuple[list[str], Indices]]]:
    for name, column in columns.items():
        values = np.asarray(column.detach().cpu() if hasattr(column, "detach") else column)
        if values.shape != (rows,):
            raise InputError(f"column {name!r} has shape {values.shape}, but confidence has {rows} entries")
        found = _quantile_groups(values, groups) if _is_number(values) else _categories(values)
        if len(found[0]) > 1:
            yield name, found


def _is_number(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "fiu" and len(np.unique(values[np.isfinite(values)])) > 10


def _categories(values: NDArray[Any]) -> tuple[list[str], Indices]:
    if values.dtype.kind in "fiu":
        missing = ~np.isfinite(values)
        shown = np.where(missing, _MISSING, [f"{value:g}" for value in values.tolist()])
    else:
        shown = np.array([_MISSING if value is None or value != value else str(value) for value in values.tolist()])
    texts, place = np.unique(shown, return_inverse=True)
    return texts.tolist(), place.astype(np.int64)


def _quantile_groups(values: NDArray[Any], groups: int) -> tuple[list[str], Indices]:
    """Groups (a, b] between the quantiles, called by their least and greatest numbers; equal numbers share a group."""
    missing = ~np.isfinite(values)
    known = np.sort(values[~missing].astype(np.float64))
    inner = np.unique(np.quantile(known, np.arange(1, groups) / groups, method="inverted_cdf"))
    inner = inner[inner < known[-1]]
    parts = np.split(known, np.searchsorted(known, inner, side="right"))
    texts = [f"{_number(part[0])} to {_number(part[-1])}" for part in parts]
    place = np.where(missing, len(texts), np.searchsorted(inner, values.astype(np.float64)))
    return [*texts, _MISSING] if missing.any() else texts, place.astype(np.int64)


def _number(value: float) -> str:
    """Whole numbers, such as dates, with all of their digits."""
    return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def _sentence(judged: list[Slice], small: int, least: int) -> str:
    left_out = f" Slices with fewer than {least} rows were left out: {small}." if small else ""
    if not judged:
        return f"There is no slice of at least {least} rows to compare with the rest.{left_out}"
    outside = [one for one in judged if one.stands_out]
    if not outside:
        return f"No slice stands out: {len(judged)} were compared, and chance explains their differences.{left_out}"
    worst = outside[0]
    where = f"{worst.column} = {worst.value} ({worst.count:,} rows)"
    said = f"is right in {100 * worst.accuracy.estimate:.1f} % and says {100 * worst.confidence:.1f} %"
    many = f"In {len(outside)} of {len(judged)} slices it is worse than elsewhere: {where} {said}."
    return many + left_out
