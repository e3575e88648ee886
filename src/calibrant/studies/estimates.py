"""A measured number with its bootstrap draws, so that differences and ratios of systems have paired intervals.

All records resample their inputs with the same counts: draw b of one system and draw b of another are of the same
resample. Subtracting draw from draw is therefore a paired bootstrap, long after the predictions are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.metrics import Interval
from calibrant.metrics.functional import Array
from calibrant.metrics.resampling import limits, seed_shares


@dataclass(frozen=True, eq=False)
class Estimate:
    """`value`, and the same quantity in each of R resamples of inputs and seeds, `draws` (R,)."""

    value: float
    draws: Array

    def __sub__(self, other: Estimate | float) -> Estimate:
        other = _as_estimate(other, self)
        return Estimate(self.value - other.value, self.draws - other.draws)

    def __truediv__(self, other: Estimate) -> Estimate:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.draws / other.draws
        return Estimate(
            self.value / other.value if other.value else np.nan, np.where(np.isfinite(ratio), ratio, np.nan)
        )

    def __rsub__(self, other: float) -> Estimate:
        return Estimate(other - self.value, other - self.draws)

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, -self.draws)

    def interval(self, level: float = 0.95, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Interval:
        """The basic bootstrap interval; NaN where more than half of the draws are undefined."""
        low, high = limits(self.value, self.draws, level, bounds)
        return Interval(self.value, float(low), float(high))


def _as_estimate(value: Estimate | float, like: Estimate) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate(value, np.full_like(like.draws, value))


def over_seeds(values: Sequence[float], draws: Array) -> Estimate:
    """The mean over S seeds of `values` (S,), whose `draws` (S, R) share their resamples of inputs.

    The seeds are resampled too, with counts v_s, and their spread is widened by sqrt(S / (S - 1)), as in
    `calibrant.evaluation.summarize`: draw b is mean_s d_sb + sqrt(S / (S - 1)) sum_s (v_sb - 1) / S d_sb.

    >>> over_seeds([0.5, 0.7], np.array([[0.5, 0.5], [0.7, 0.7]])).value
    0.6
    """
    seeds, resamples = draws.shape
    mean = float(np.mean(values))
    if seeds == 1:
        return Estimate(mean, draws[0])
    counts = np.random.default_rng(seeds).multinomial(seeds, np.full(seeds, 1 / seeds), resamples).T
    return Estimate(mean, (seed_shares(counts, seeds) * draws).sum(0))
