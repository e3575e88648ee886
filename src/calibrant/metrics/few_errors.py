"""What resamples cannot show where few answers are wrong, or few are right: none of them holds the errors not met yet.

A sample with nothing but right answers gives resamples with nothing but right answers, and an interval of no width.
But the accuracy has an interval all the same, that of Wilson, and a measure that changes by at most delta when a share
delta of the outcomes changes lies no further from its sample value than the accuracy does from its own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from calibrant.metrics.functional import Array
from calibrant.metrics.proportion import proportion

FEW, RARE, SHARE = 30, 70, 0.1
"""Wrong or right answers are few below `FEW`, and below `RARE` where they are less than `SHARE` of all.

Chosen by simulation. The resamples' error is of the order of the skewness of the count, which for 70 rare answers is
that of 35 among 200.
"""
Reach = Callable[..., Array]
"""`reach(level, *base)`, (2,) or (2, k): how far the truth may lie below and above the value. See `Functional`."""


def accuracy_reach(right: float, total: float, level: float) -> tuple[float, float]:
    """How far Wilson's interval of `right` of `total` reaches below and above the share; 0 where neither is few.

    >>> accuracy_reach(19, 19, 0.95)
    (0.168, 0.0)
    >>> accuracy_reach(160, 200, 0.95)
    (0.0, 0.0)
    """
    fewer = min(right, total - right)
    if total == 0 or fewer >= (RARE if fewer < SHARE * total else FEW):
        return 0.0, 0.0
    share = proportion(right, total, level)
    return share.estimate - share.low, share.high - share.estimate


def lipschitz_reach(right: Array, factor: float = 1.0) -> Reach:
    """The reach of a measure of `right` (n,), of 0 and 1, that changes by at most `factor` delta when the mean does.

    It is `factor` times the longer side of `accuracy_reach`, both below and above: errors not met yet may add to a gap
    or fill it.
    """

    def reach(level: float, weights: Array) -> Array:
        return np.full(2, factor * error_reach(right, weights, level))

    return reach


def error_reach(right: Array, weights: Array, level: float) -> float:
    """The longer side of `accuracy_reach` of outcomes `right` (n,) that count `weights` (1, n)."""
    return max(accuracy_reach(float(weights[0] @ right), float(weights[0].sum()), level))
