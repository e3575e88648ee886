"""Accuracy, confidence and calibration by group, from sums over groups: any number of groups in one pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics import Interval
from calibrant.metrics.functional import Array, Indices, divide
from calibrant.metrics.norm_limits import norm_limits

LEAST = 30
"""The fewest rows of which an ECE has an interval."""
_DRAWS = 500
_Z = 1.959964


def sums(group: Indices, groups: int, values: NDArray[np.generic] | None = None) -> Array:
    """The sum of `values` (n,), or the number of rows, in each group, (groups,)."""
    return np.bincount(group, None if values is None else values.astype(np.float64), minlength=groups).astype(float)


def mean_interval(total: float, squares: float, count: float) -> Interval:
    """A mean from the sum and the sum of squares, with its normal interval; without one of fewer than 30 rows."""
    if count == 0:
        return Interval(np.nan, np.nan, np.nan)
    mean = total / count
    if count < LEAST:
        return Interval(float(mean), np.nan, np.nan)
    half = _Z * np.sqrt(max(squares / count - mean**2, 0) / (count - 1))
    return Interval(float(mean), float(mean - half), float(mean + half))


def calibration_errors(group: Indices, groups: int, index: Indices, residual: Array, bins: int) -> list[Interval]:
    """The ECE of each group; `index` (n,) is the bin of each row, `residual` (n,) is correct - confidence.

    The interval is that of `norm_limits`, with normal noise of the variance sum e^2 / n^2 in each bin.
    """
    cell, cells = group * bins + index, groups * bins
    count = sums(group, groups)
    gaps = divide(sums(cell, cells, residual).reshape(groups, bins), count[:, None])
    noise = divide(np.sqrt(sums(cell, cells, residual**2)).reshape(groups, bins), count[:, None])
    draws = np.random.default_rng(0).normal(size=(_DRAWS, bins))
    found = []
    for size, gap, std in zip(count, gaps, noise):
        estimate, low, high = float(np.abs(gap).sum()), np.nan, np.nan
        if size >= LEAST:
            drawn = (gap + draws * std)[:, :, None]
            low, high = norm_limits((np.zeros(()), gap[:, None]), (np.zeros(_DRAWS), drawn), 0.95)
        found.append(Interval(estimate, float(np.clip(low, 0, 1)), float(np.clip(high, 0, 1))))
    return found
