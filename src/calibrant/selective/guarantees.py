"""Thresholds with a finite-sample guarantee, from examples that nothing else has touched."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from torch import Tensor

from calibrant import InputError, checks
from calibrant.metrics.functional import Array
from calibrant.selective.thresholds import Threshold

Measure = Literal["error", "calibration"]


@dataclass(frozen=True)
class Guarantee:
    """With probability at least 1 - delta over the calibration part, `measure` at `threshold` is at most alpha.

    `threshold` is None where no threshold could be certified. `coverage` and `estimate` are those of the calibration
    part. `bound` is the upper confidence bound at this threshold alone, at most alpha; after the search over
    thresholds it is alpha that is guaranteed.
    """

    measure: Measure
    alpha: float
    delta: float
    threshold: float | None
    coverage: float
    estimate: float
    bound: float
    accepted: int
    total: int

    def __bool__(self) -> bool:
        return self.threshold is not None

    def __str__(self) -> str:
        name = "selective error" if self.measure == "error" else "selective calibration error"
        claim = f"{name} <= {self.alpha:g} with probability {1 - self.delta:g}"
        if self.threshold is None:
            return f"No threshold on the grid could be certified to have {claim} from {self.total} examples."
        return f"{claim}, at coverage {self.coverage:.3f} (threshold {self.threshold:.6g}); nothing off distribution."


def clopper_pearson_upper(errors: int, total: int, level: float) -> float:
    """The largest error rate under which at most `errors` of `total` have probability `level`; 1 without data.

    >>> round(clopper_pearson_upper(0, 45, 0.1), 4)  # 1 - 0.1^(1/45)
    0.0499
    """
    from scipy.special import betaincinv

    return 1.0 if errors >= total else float(betaincinv(errors + 1, total - errors, 1 - level))


def clopper_pearson_lower(successes: int, total: int, level: float) -> float:
    """The smallest rate under which at least `successes` of `total` have probability `level`."""
    return 1 - clopper_pearson_upper(total - successes, total, level)


def error_bound(accepted: Array, correct: Array, level: float) -> float:
    """Upper bound of the error rate among accepted examples, exceeded with probability at most `level`."""
    kept = correct[accepted > 0]
    return clopper_pearson_upper(int((kept == 0).sum()), len(kept), level)


def calibration_bound(accepted: Array, correct: Array, level: float, *, confidence: Array, bins: int) -> float:
    """Upper bound of the binned calibration error among accepted examples, exceeded with probability at most `level`.

    ECE = sum_b p_b |acc_b - conf_b| over `bins` equal bins (a, b]. A union bound holds together, for all bins,
    Clopper-Pearson intervals for acc_b (8/10 of the level), Hoeffding intervals for conf_b within the bin (1/10) and
    Clopper-Pearson intervals for p_b (1/10); the bound is the largest ECE they allow.
    """
    kept = accepted > 0
    right, sure = correct[kept], confidence[kept]
    if len(sure) == 0:
        return 1.0
    index = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    side = level / (20 * bins)  # one side of one interval of one bin, for a tenth of the level
    gaps, low, high = np.ones(bins), np.zeros(bins), np.zeros(bins)
    for b in range(bins):
        inside = index == b
        count = int(inside.sum())
        low[b], high[b] = _interval(count, len(sure), side)
        if count:
            gaps[b] = _gap(right[inside], sure[inside], (b / bins, (b + 1) / bins), side)
    return _largest_mean(gaps, low, high)


def _interval(successes: int, total: int, side: float) -> tuple[float, float]:
    return clopper_pearson_lower(successes, total, side), clopper_pearson_upper(successes, total, side)


def _gap(right: Array, sure: Array, edges: tuple[float, float], side: float) -> float:
    """The largest |accuracy - confidence| of a bin that its examples allow."""
    worst, best = _interval(int(right.sum()), len(right), 8 * side)
    slack = (edges[1] - edges[0]) * math.sqrt(math.log(1 / side) / (2 * len(sure)))
    lowest, highest = max(edges[0], sure.mean() - slack), min(edges[1], sure.mean() + slack)
    return float(max(best - lowest, highest - worst))


def _largest_mean(values: Array, low: Array, high: Array) -> float:
    """Max sum_b p_b v_b over distributions with low <= p <= high: what is left goes to the largest values."""
    p, left = low.copy(), 1 - low.sum()
    for b in np.argsort(-values):
        more = min(high[b] - low[b], left)
        p[b] += more
        left -= more
    return float(p @ values)


def certify(
    gate: Tensor,
    confidence: Tensor,
    correct: Tensor,
    grid: Sequence[Threshold],
    *,
    alpha: float,
    delta: float,
    measure: Measure = "error",
    bins: int = 10,
    starts: int | None = None,
) -> Guarantee:
    """The threshold of `grid` with the largest coverage that fixed-sequence testing certifies.

    `gate`, `confidence`, `correct` (n,) are the calibration part, `grid` runs from small to large coverage and must
    have been fixed without it. From each of `starts` places on the grid, chosen by n, alpha and delta alone, the
    hypothesis "the measure exceeds alpha" is tested at level delta / starts, threshold after threshold, up to the
    first that cannot be rejected. By default one start for the error and four for the calibration error.
    """
    for name, value in (("alpha", alpha), ("delta", delta)):
        if not 0 < value < 1:
            raise InputError(f"{name} must lie in (0, 1), not {value}")
    if measure not in ("error", "calibration"):
        raise InputError(f"measure must be 'error' or 'calibration', not {measure!r}")
    bins = int(checks.positive("bins", bins))
    starts = (1 if measure == "error" else 4) if starts is None else int(checks.positive("starts", starts))
    outputs, sure, right = (x.detach().cpu().double().numpy() for x in (gate, confidence, correct))
    bound: Callable[[Array, Array, float], float] = error_bound
    if measure == "calibration":
        bound = partial(calibration_bound, confidence=sure, bins=bins)
    places = starting_places(first_index(grid, len(outputs), alpha, delta), len(grid), starts)
    level = delta / len(places)
    found = fixed_sequences(places, len(grid), lambda j: bound(_accepted(outputs, grid[j]), right, level) <= alpha)
    threshold = grid[found] if found >= 0 else None
    return _report(measure, alpha, delta, threshold, bound, level, (outputs, sure, right), bins)


def _accepted(outputs: Array, threshold: Threshold) -> Array:
    return (outputs >= threshold.value).astype(np.float64)


def starting_places(first: int, count: int, starts: int) -> list[int]:
    """Where the sequences of tests start: `starts` places from `first` to the last of `count`, evenly, none twice."""
    return sorted(set(np.linspace(first, count - 1, starts).astype(int).tolist()))


def fixed_sequences(places: Sequence[int], count: int, rejects: Callable[[int], bool]) -> int:
    """The last of the hypotheses 0 to `count` - 1 that is rejected; -1 where none is.

    From each of `places`, one hypothesis after another is tested up to the first that `rejects` says no to. A true one
    is rejected with probability at most the number of places times the level of one test.
    """
    found = -1
    for place in places:
        for j in range(place, count):
            if not rejects(j):
                break
            found = max(found, j)
    return found


def first_index(grid: Sequence[Threshold], total: int, alpha: float, delta: float) -> int:
    """Where testing starts: the smallest coverage at which an error rate of alpha / 2 would probably be certified."""
    needed = 1
    while clopper_pearson_upper(math.ceil(needed * alpha / 2), needed, delta) > alpha and needed < total:
        needed += max(1, needed // 10)
    enough = [j for j, threshold in enumerate(grid) if threshold.achieved * total >= needed]
    return enough[0] if enough else len(grid) - 1


def _report(
    measure: Measure,
    alpha: float,
    delta: float,
    threshold: Threshold | None,
    bound: Callable[[Array, Array, float], float],
    level: float,
    data: tuple[Array, Array, Array],
    bins: int,
) -> Guarantee:
    outputs, sure, right = data
    total = len(outputs)
    if threshold is None:
        return Guarantee(measure, alpha, delta, None, 0.0, math.nan, math.nan, 0, total)
    mask = _accepted(outputs, threshold)
    kept = mask > 0
    count = int(kept.sum())
    estimate = float(1 - right[kept].mean()) if measure == "error" else binned_error(sure[kept], right[kept], bins)
    upper = bound(mask, right, level)
    return Guarantee(measure, alpha, delta, threshold.value, count / total, estimate, upper, count, total)


def binned_error(confidence: Array, correct: Array, bins: int) -> float:
    """ECE of confidence and correctness (n,) over equal bins (a, b], the first with 0."""
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(index, correct - confidence, bins)
    return float(np.abs(gaps).sum() / len(confidence))
