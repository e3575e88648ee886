"""Accuracy, confidence and calibration by group, from sums over groups: any number of groups in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics import Interval
from calibrant.metrics.few_errors import accuracy_reach
from calibrant.metrics.functional import Array, Indices, divide
from calibrant.metrics.norm_limits import norm_limits
from calibrant.metrics.resampling import extended

LEAST = 30
"""The fewest rows of which an ECE has an interval."""
_DRAWS = 500
_LEVEL, _Z = 0.95, 1.959964


def sums(group: Indices, groups: int, values: NDArray[np.generic] | None = None) -> Array:
    """The sum of `values` (n,), or the number of rows, in each group, (groups,)."""
    return np.bincount(group, None if values is None else values.astype(np.float64), minlength=groups).astype(float)


def gap_interval(total: float, squares: float, hits: float, count: float) -> Interval:
    """A mean gap, confidence - correct, from the sum, the sum of squares and how many are right.

    It has the normal interval, widened where few are wrong or few are right as that of `metrics.mean_gap`; none of
    fewer than 30 rows.
    """
    if count == 0:
        return Interval(np.nan, np.nan, np.nan)
    mean = total / count
    if count < LEAST:
        return Interval(float(mean), np.nan, np.nan)
    half = _Z * np.sqrt(max(squares / count - mean**2, 0) / (count - 1))
    lower, higher = accuracy_reach(hits, count, _LEVEL)
    low, high = extended(mean, (mean - half, mean + half), (higher, lower), norms=False)
    return Interval(float(mean), float(low), float(high))


def calibration_errors(
    group: Indices, groups: int, index: Indices, confidence: Array, right: Array, bins: int
) -> list[Interval]:
    """The ECE of each group; `index` (n,) is the bin of each row.

    The interval is that of `norm_limits`, with normal noise of the variance sum e^2 / n^2 in each bin, widened where
    few are wrong or few are right as that of the ECE.
    """
    cell, cells, residual = group * bins + index, groups * bins, right - confidence
    count, hits = sums(group, groups), sums(group, groups, right)
    gaps = divide(sums(cell, cells, residual).reshape(groups, bins), count[:, None])
    noise = divide(np.sqrt(sums(cell, cells, residual**2)).reshape(groups, bins), count[:, None])
    draws = np.random.default_rng(0).normal(size=(_DRAWS, bins))
    found = []
    for size, good, gap, std in zip(count, hits, gaps, noise):
        estimate, low, high = float(np.abs(gap).sum()), np.nan, np.nan
        if size >= LEAST:
            drawn = (gap + draws * std)[:, :, None]
            ends = norm_limits((np.zeros(()), gap[:, None]), (np.zeros(_DRAWS), drawn), _LEVEL)
            delta = max(accuracy_reach(good, size, _LEVEL))
            low, high = map(float, np.clip(extended(estimate, ends, (delta, delta), norms=True), 0, 1))
        found.append(Interval(estimate, low, high))
    return found
