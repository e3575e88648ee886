"""The share of outliers in an unlabeled stream, from the likelihood ratios of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.functional import Array

_WIDEST = 0.5  # an interval wider than this says next to nothing
_FLATTEST = 0.05  # standard deviation of the log ratio below which it is taken for a constant


@dataclass(frozen=True)
class Share:
    """An estimated share of outliers with the limits of its interval; `identified` is False where it says nothing."""

    estimate: float
    low: float
    high: float
    identified: bool

    def __float__(self) -> float:
        return self.estimate


def estimate_share(ratio: Any, *, level: float = 0.95) -> Share:
    """The share pi of outliers that makes ratios (n,), outlier / ID, of an unlabeled stream most likely.

    Maximizes sum_i log((1 - pi) + pi ratio_i), which is concave in pi; the maximum is the fixed point of the EM steps
    pi <- mean_i pi ratio_i / ((1 - pi) + pi ratio_i). The interval holds every pi whose likelihood is within
    chi2_1(level) / 2 of the maximum. It accounts for the finite stream, not for errors in the ratio: kinds of outliers
    that look less outlying than those the ratio was fitted to are counted in part.

    A warning is issued, and `identified` is False, where the ratio hardly varies or the interval is wider than a half.

    >>> estimate_share([0.1] * 80 + [9.0] * 20)
    Share(estimate=0.1222..., low=0.0353..., high=0.2278..., identified=True)
    """
    from scipy.stats import chi2

    r = checks.finite("ratio", checks.floating("ratio", ratio, dims=1)).detach().cpu().double().numpy()
    if (r < 0).any():
        raise InputError("ratio must not be negative: pass likelihood ratios, not their logarithms")
    if not 0 < level < 1:
        raise InputError(f"level must lie in (0, 1), not {level}")
    estimate = _maximum(r)
    least = _likelihood(r, estimate) - float(chi2.ppf(level, 1)) / 2
    low = _boundary(lambda pi: _likelihood(r, pi) < least, 0.0, estimate)
    high = _boundary(lambda pi: _likelihood(r, pi) < least, 1.0, estimate)
    varies = float(np.log(np.maximum(r, np.finfo(np.float64).tiny)).std()) > _FLATTEST
    identified = varies and high - low <= _WIDEST
    if not identified:
        warnings.warn(
            "the share of outliers is not identified: the ratio hardly tells the inputs of this stream apart, or there"
            " are too few of them; assume a share instead",
            stacklevel=2,
        )
    return Share(estimate, low, high, identified)


def _likelihood(ratio: Array, pi: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log((1 - pi) + pi * ratio).sum())


def _maximum(ratio: Array) -> float:
    """Where the derivative, which falls in pi, changes its sign."""

    def falls(pi: float) -> bool:
        with np.errstate(divide="ignore"):
            return bool(((ratio - 1) / ((1 - pi) + pi * ratio)).sum() <= 0)

    if falls(0.0):
        return 0.0
    return _boundary(falls, 1.0, 0.0)


def _boundary(outside: Callable[[float], bool], end: float, inside: float) -> float:
    """The last point on the way from `inside` to `end` that is not `outside`, by bisection; `end` if it is not."""
    if not outside(end):
        return end
    for _ in range(60):
        middle = (end + inside) / 2
        end, inside = (middle, inside) if outside(middle) else (end, middle)
    return inside
