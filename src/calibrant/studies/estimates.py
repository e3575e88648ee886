"""A measured number with its bootstrap draws, so that differences and ratios of systems have paired intervals.

All records resample their inputs with the same counts: draw b of one system and draw b of another are of the same
resample. Subtracting draw from draw is therefore a paired bootstrap, long after the predictions are gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.metrics import Interval
from calibrant.metrics.declarations import catalogue
from calibrant.metrics.functional import Array, Bounds
from calibrant.metrics.resampling import holding, limits, seed_shares

ANY: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Estimate:
    """`value`, and the same quantity in each of R resamples of inputs and seeds, `draws` (R,).

    `bounds` are the values that it can have; those of differences and ratios follow.

    >>> (Estimate(0.2, np.zeros(3), (0, 1)) - Estimate(0.1, np.zeros(3), (0, 1))).bounds
    (-1, 1)
    """

    value: float
    draws: Array
    bounds: Bounds = ANY

    def __sub__(self, other: Estimate | float) -> Estimate:
        other = _as_estimate(other, self)
        bounds = self.bounds[0] - other.bounds[1], self.bounds[1] - other.bounds[0]
        return Estimate(self.value - other.value, self.draws - other.draws, bounds)

    def __truediv__(self, other: Estimate) -> Estimate:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.draws / other.draws
        value = self.value / other.value if other.value else np.nan
        return Estimate(value, np.where(np.isfinite(ratio), ratio, np.nan), _ratio_bounds(self.bounds, other.bounds))

    def __rsub__(self, other: float) -> Estimate:
        return _as_estimate(other, self) - self

    def __neg__(self) -> Estimate:
        return 0.0 - self

    def interval(self, level: float = 0.95, bounds: Bounds | None = None) -> Interval:
        """The basic bootstrap interval, within `bounds`, by default its own, and with the value inside it.

        NaN where more than half of the draws are undefined.
        """
        return holding(self.value, *limits(self.value, self.draws, level), bounds or self.bounds).interval()

    def p_value(self, low: float = -math.inf, high: float = math.inf) -> float:
        """Of the hypothesis that the true value lies between `low` and `high`, against that it lies outside.

        It is (1 - level) / 2 for the level at which the basic interval just leaves the range: the share of the
        resamples in which the value moves by more than its distance from the range, towards where it lies. What R
        resamples cannot resolve, below 1 / (R + 1), is the tail of a normal distribution with their standard
        deviation. NaN where the interval is undefined.

        >>> Estimate(0.2, np.linspace(0.1, 0.3, 101)).p_value(low=0.25)
        0.25
        """
        if not math.isfinite(self.interval().low):
            return math.nan
        moves = self.draws[~np.isnan(self.draws)] - self.value
        return min(_tail(self.value - low, moves), _tail(high - self.value, -moves))


def _tail(distance: float, moves: Array) -> float:
    """How probable it is that sampling moves a value by no more than `distance`, which is negative beyond the bound."""
    if distance > 0:
        return 1.0
    share = float(np.interp(distance, np.sort(moves), np.linspace(0, 1, len(moves))))
    deviation = float(np.std(moves, ddof=1))
    normal = 0.5 * math.erfc(-distance / deviation / math.sqrt(2)) if deviation else 0.0
    return max(share, min(normal, 1 / (len(moves) + 1)))


def _ratio_bounds(above: Bounds, below: Bounds) -> Bounds:
    """Of the ratio of two quantities that are not negative; of others, any."""
    if above[0] < 0 or below[0] < 0:
        return ANY
    return above[0] / below[1], above[1] / below[0] if below[0] else math.inf


def _as_estimate(value: Estimate | float, like: Estimate) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value, np.full_like(like.draws, value), (value, value))


def bounds_of(measure: str) -> Bounds:
    """What `measure`, such as "ece" or "detection:lsun-resize", can be; guessing already detects half.

    Of a measure that is not declared, such as that of a plugin that is not loaded, nothing is known.

    >>> bounds_of("detection:lsun-resize"), bounds_of("ece")
    ((0.5, 1.0), (0.0, 1.0))
    """
    name = measure.partition(":")[0]
    if name.startswith("detection"):
        return (0.5, 1.0)
    return catalogue()[name].bounds if name in catalogue() else ANY


def over_seeds(values: Sequence[float], draws: Array, bounds: Bounds = ANY) -> Estimate:
    """The mean over S seeds of `values` (S,), whose `draws` (S, R) share their resamples of inputs.

    The seeds are resampled too, with counts v_s, and their spread is widened by sqrt(S / (S - 1)), as in
    `calibrant.evaluation.summarize`: draw b is mean_s d_sb + sqrt(S / (S - 1)) sum_s (v_sb - 1) / S d_sb.

    >>> over_seeds([0.5, 0.7], np.array([[0.5, 0.5], [0.7, 0.7]])).value
    0.6
    """
    seeds, resamples = draws.shape
    mean = float(np.mean(values))
    if seeds == 1:
        return Estimate(mean, draws[0], bounds)
    counts = np.random.default_rng(seeds).multinomial(seeds, np.full(seeds, 1 / seeds), resamples).T
    return Estimate(mean, (seed_shares(counts, seeds) * draws).sum(0), bounds)
