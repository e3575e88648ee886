"""Bootstrap intervals of functionals, whose rows may each stand for many inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.metrics import Band, bootstrap_band
from calibrant.metrics.functional import Array, Functional, curve

_ENTRIES = 2**21


@curve
def _itself(functional: Functional) -> Functional:
    return functional


def band(functional: Functional, counts: Sequence[Array | None], *, resamples: int, level: float, seed: int) -> Band:
    """Intervals of each entry of `functional` by the basic bootstrap (see `calibrant.metrics.bootstrap`).

    `counts`: for each sample how many inputs each row stands for, None for one. A resample of a sample of n inputs in
    rows with counts c is then a multinomial draw of n with probabilities c / n: the bootstrap of the inputs, summed up.
    """
    if all(count is None for count in counts):
        return bootstrap_band(_itself, functional, resamples=resamples, level=level, seed=seed)
    known = [np.ones(size) if count is None else count for count, size in zip(counts, functional.sizes)]
    estimate = functional.under(*(count[None] for count in known))[0]
    draws = _draws(functional, known, resamples, seed)
    usable = (2 * (~np.isnan(draws)).sum(0) >= resamples) & np.isfinite(estimate)
    low, high = np.nanquantile(np.where(usable, draws, 0), [(1 - level) / 2, (1 + level) / 2], axis=0)
    limits = [np.clip(2 * estimate - limit, *functional.bounds) for limit in (high, low)]
    return Band(estimate, *(np.where(usable, limit, np.nan) for limit in limits))


def _draws(functional: Functional, counts: Sequence[Array], resamples: int, seed: int) -> Array:
    streams = [np.random.default_rng((seed, sample)) for sample in range(len(counts))]
    rows = max(1, _ENTRIES // sum(functional.sizes))
    parts = []
    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        drawn = [rng.multinomial(round(c.sum()), c / c.sum(), size) for rng, c in zip(streams, counts)]
        parts.append(functional.under(*(part.astype(np.float64) for part in drawn)))
    return np.concatenate(parts)


def default_resamples(rows: int) -> int:
    """1000 for up to 2,000 rows; fewer for more, down to 200 from 10,000 on, where intervals are narrow anyway."""
    return int(np.clip(2_000_000 // max(rows, 1), 200, 1000))
