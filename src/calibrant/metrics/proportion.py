"""The interval of a share, also of none and of all."""

from __future__ import annotations

import math
from statistics import NormalDist

from calibrant.metrics.resampling import Interval


def proportion(successes: float, count: float, level: float = 0.95) -> Interval:
    """A share with the interval of Wilson (1927), which lies in [0, 1] and is not empty at 0 or 1; NaN of no points.

    >>> proportion(10, 10)
    Interval(estimate=1.0, low=0.722, high=1.0)
    """
    if count == 0:
        return Interval(math.nan, math.nan, math.nan)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, square = successes / count, z**2 / count
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(max(share * (1 - share), 0) / count + square / (4 * count)) / (1 + square)
    return Interval(float(share), float(max(min(middle - half, share), 0)), float(min(max(middle + half, share), 1)))
