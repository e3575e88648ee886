"""Resampling: the draws of a functional, and the limits of an interval that they give.

A resample of n points gives each point a count; the counts of a sample sum to n. Independent samples (ID and OOD) are
resampled independently, arrays of one sample (confidence and correctness) together.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibrant import InputError
from calibrant.metrics.functional import Array, Bounds, Functional, Indices
from calibrant.metrics.norm_limits import flat, norm_limits

Method = Literal["auto", "basic", "percentile"]
_ENTRIES = 2**17  # of a block, which then stays in the cache of a processor
_KEPT = 2**21


@dataclass(frozen=True)
class Interval:
    """An estimate and the limits of its confidence interval, which are NaN where no interval is honest."""

    estimate: float
    low: float
    high: float

    @property
    def shown(self) -> float:
        """The estimate as it is shown: in the range of the measure, which a bias-corrected estimate can leave."""
        return min(max(self.estimate, self.low), self.high) if np.isfinite(self.low) else self.estimate


@dataclass(frozen=True, eq=False)
class Band:
    """The same for a measure of several numbers, each with an interval of its own."""

    estimate: Array
    low: Array
    high: Array

    def interval(self) -> Interval:
        """The interval of a measure of one number."""
        return Interval(float(self.estimate), float(self.low), float(self.high))

    def intervals(self) -> list[Interval]:
        """One interval per entry."""
        return [Interval(*row) for row in np.stack([self.estimate, self.low, self.high], axis=1).tolist()]


def resampled_band(
    functional: Functional,
    counts: Sequence[Array] | None = None,
    *,
    resamples: int,
    level: float,
    seed: int,
    method: Method = "auto",
) -> Band:
    """Intervals of each entry of `functional`; `counts` as of `resampled`, the rest as of `bootstrap`."""
    if isinstance(resamples, bool) or not isinstance(resamples, int) or resamples < 2:
        raise InputError(f"resamples must be a whole number of at least 2, not {resamples}")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a whole number of at least 0, not {seed}")
    if method == "auto" and functional.interval == "norms":
        band = _band_of_norms(functional, counts, resamples=resamples, level=level, seed=seed)
        return _reaching(band, functional, counts, level)
    estimate = functional.value(counts)
    if method == "auto" and functional.interval == "none":
        return Band(estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan))
    draws = resampled(functional, counts, resamples=resamples, seed=seed)
    if method != "auto":
        return Band(estimate, *limits(estimate, draws, level, functional.bounds, method))
    band = holding(estimate, *limits(estimate, draws, level), functional.bounds)
    return _reaching(band, functional, counts, level)


def holding(estimate: Array | float, low: Array, high: Array, bounds: Bounds) -> Band:
    """The limits, moved out where the estimate lies beyond them, and cut to the range of the measure."""
    defined = np.isfinite(estimate) & np.isfinite(low) & np.isfinite(high)
    ends = np.clip(np.fmin(low, estimate), *bounds), np.clip(np.fmax(high, estimate), *bounds)
    return Band(np.asarray(estimate), *(np.where(defined, end, np.nan) for end in ends))


def _reaching(band: Band, functional: Functional, counts: Sequence[Array] | None, level: float) -> Band:
    """The intervals widened by the `reach` of the functional, which resamples do not show."""
    if functional.reach is None:
        return band
    reach = functional.reach(level, *_base(functional, counts))
    center = np.clip(band.estimate, *functional.bounds)
    ends = extended(center, (band.low, band.high), (reach[0], reach[1]), norms=functional.interval == "norms")
    return holding(band.estimate, *ends, functional.bounds)


def extended(
    center: Array | float, ends: tuple[Array | float, Array | float], reach: tuple[Array | float, Array | float],
    *, norms: bool,
) -> tuple[Array, Array]:  # fmt: skip
    """The limits `ends` of an estimate whose truth may lie as far below and above it as `reach`, unseen by resamples.

    The interval becomes at least as wide as the reach. Of sums of `norms`, to whose terms errors not met yet add as
    noise does, the distances of limit and reach add up in squares, as in the method of variance estimates recovery (Zou
    & Donner 2008).

    >>> low, high = extended(0.1, (0.08, 0.12), (0.0, 0.05), norms=False)
    >>> float(low), float(high)
    (0.08, 0.15)
    """
    together = np.hypot if norms else np.maximum
    (low, high), (below, above) = ends, reach
    lower = np.where(np.asarray(below) > 0, center - together(center - low, below), low)
    return lower, np.where(np.asarray(above) > 0, center + together(high - center, above), high)


def _base(functional: Functional, counts: Sequence[Array] | None) -> list[Array]:
    """The weights (1, n) of the data themselves."""
    return [row[None] for row in (counts or [np.ones(size) for size in functional.sizes])]


def _band_of_norms(
    functional: Functional, counts: Sequence[Array] | None, *, resamples: int, level: float, seed: int
) -> Band:
    """Intervals of sums of norms, whose terms are resampled instead of their values: see `norm_limits`."""
    assert functional.terms is not None
    base = _base(functional, counts)
    terms_under, estimate = functional.terms(*base), functional.value(counts)

    def packed(*weights: Array) -> Array:
        found = terms_under(*weights)
        return np.concatenate([np.column_stack([smooth, flat(parts)]) for smooth, parts in found], axis=1)

    whole = terms_under(*base)
    draws = resampled(Functional(functional.sizes, packed), counts, resamples=resamples, seed=seed)
    columns = np.split(draws, np.cumsum([1 + flat(parts).shape[1] for _, parts in whole])[:-1], axis=1)
    ends = np.array(
        [
            norm_limits((smooth[0], parts[0]), (drawn[:, 0], drawn[:, 1:].reshape(-1, *parts.shape[1:])), level)
            for (smooth, parts), drawn in zip(whole, columns)
        ]
    ).reshape(*estimate.shape, 2)
    return holding(estimate, ends[..., 0], ends[..., 1], functional.bounds)


def limits(
    estimate: Array | float,
    draws: Array,
    level: float,
    bounds: Bounds = (-np.inf, np.inf),
    method: Method = "basic",
) -> tuple[Array, Array]:
    """Lower and upper limit of `estimate`, () or (k,), from its value in R resamples, `draws` (R,) or (R, k).

    Methods as of `bootstrap`. NaN where the estimate is not finite or more than half of its draws are NaN; fewer are
    left out.

    >>> low, high = limits(0.5, np.array([0.4, 0.5, 0.7, np.nan]), level=0.5)
    >>> float(low), float(high)
    (0.4, 0.55)
    """
    if not 0 < level < 1:
        raise InputError(f"level must lie in (0, 1), not {level}")
    if method not in ("basic", "percentile"):
        raise InputError(f'method must be "auto", "basic" or "percentile", not {method!r}')
    usable = (2 * (~np.isnan(draws)).sum(0) >= len(draws)) & np.isfinite(estimate)
    low, high = np.nanquantile(np.where(usable, draws, 0), [(1 - level) / 2, (1 + level) / 2], axis=0)
    if method == "basic":
        low, high = 2 * estimate - high, 2 * estimate - low
    return np.where(usable, np.clip(low, *bounds), np.nan), np.where(usable, np.clip(high, *bounds), np.nan)


def resampled(functional: Functional, counts: Sequence[Array] | None = None, *, resamples: int, seed: int) -> Array:
    """The functional in `resamples` resamples, (R,) or (R, k), evaluated some hundred thousand weights at a time.

    `counts` holds (n,) for each sample: how many inputs each row stands for; None: one everywhere. A resample of N
    inputs in rows with counts c is a multinomial draw of N with probabilities c / N: the bootstrap of the inputs,
    summed over rows.
    """
    streams = [np.random.default_rng((seed, sample)) for sample in range(len(functional.sizes))]
    rows = max(1, _ENTRIES // sum(functional.sizes))
    parts = []
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        if counts is None and resamples * max(functional.sizes) <= _KEPT:
            drawn = (_same_counts(seed, sample, resamples, n) for sample, n in enumerate(functional.sizes))
            weights = [each[start : start + size] for each in drawn]
        elif counts is None:
            weights = [resampling_counts(rng, size, n) for rng, n in zip(streams, functional.sizes)]
        else:
            weights = [_multinomial(rng, size, count) for rng, count in zip(streams, counts)]
        parts.append(functional.under(*weights))
    return np.concatenate(parts)


def resampling_counts(rng: np.random.Generator, rows: int, n: int) -> Array:
    """How often each of n points is drawn in n draws with replacement, (rows, n)."""
    drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


@functools.lru_cache(maxsize=4)
def _same_counts(seed: int, sample: int, resamples: int, n: int) -> Array:
    """The counts of all resamples, kept from one measure to the next: a table asks for the same ones many times."""
    counts = resampling_counts(np.random.default_rng((seed, sample)), resamples, n)
    counts.setflags(write=False)
    return counts


def _multinomial(rng: np.random.Generator, rows: int, count: Array) -> Array:
    return rng.multinomial(round(count.sum()), count / count.sum(), rows).astype(np.float64)


def seed_shares(counts: Array | Indices, seeds: int) -> Array:
    """How much each of S seeds counts in their mean when it was drawn v times: (1 + sqrt(S / (S - 1)) (v - 1)) / S.

    Plain resampling of S seeds has the variance (S - 1) / S of what S seeds really have; the root restores it.
    """
    shares: Array = (1 + np.sqrt(seeds / (seeds - 1)) * (counts - 1)) / seeds
    return shares
