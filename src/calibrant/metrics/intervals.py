"""Bootstrap intervals of any measure, of differences between two systems, and bands around curves.

Our own measures are evaluated under many resamples at once; any other function is called once per resample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.functional import Array, Functional, functional_of, is_measure
from calibrant.metrics.resampling import Band, Interval, Method, resampled_band


def bootstrap(
    measure: Callable[..., float],
    *arrays: Any,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "auto",
    groups: Sequence[int] | None = None,
    **options: Any,
) -> Interval:
    """A bootstrap confidence interval of `measure(*arrays, **options)`.

    `measure` is one of ours or any function of arrays. `groups` says, for another function, which of its arrays are
    resampled together: (0, 0, 1) for a function of (confidence, correct, ood_confidence); by default all are.

    The basic method reflects the resamples' quantiles about the estimate, [2 e - q_high, 2 e - q_low], cut to the
    range of the measure. Measures that are sums of norms (ECE, TV and their kin) lie above the truth by chance, the
    more the nearer it is to 0, so that neither the basic interval nor the percentile interval [q_low, q_high] covers
    them. By default, `method="auto"`, these have the interval of `calibrant.metrics.norm_limits`, which holds the
    estimate and covers a true 0 too; measures of which no interval is honest have NaN for limits; all others have the
    basic one. Where few answers are wrong, or few are right, intervals of calibration errors are extended by what
    resamples cannot show (`calibrant.metrics.few_errors`).

    Resamples in which the measure is undefined (NaN) are left out; if they are more than half, the limits are NaN.

    >>> from calibrant.metrics import accuracy
    >>> bootstrap(accuracy, [1] * 80 + [0] * 20, seed=1)
    Interval(estimate=0.8, low=0.73, high=0.89)
    """
    functional = _functional(measure, arrays, options, groups)
    return resampled_band(functional, resamples=resamples, level=level, seed=seed, method=method).interval()


def bootstrap_difference(
    measure: Callable[..., float],
    first: Sequence[Any],
    second: Sequence[Any],
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "auto",
    groups: Sequence[int] | None = None,
    **options: Any,
) -> Interval:
    """An interval of `measure(*first) - measure(*second)` for two systems on the same points (paired).

    Both are resampled with the same counts, so what the points have in common cancels. The interval is the basic one.
    It holds differences of sums of norms (ECE, TV and their kin) too seldom, so by default they have none: their
    limits are NaN, and each system has an interval of its own from `bootstrap`. Arguments as of `bootstrap`.

    >>> from calibrant.metrics import accuracy
    >>> bootstrap_difference(accuracy, [[1, 1, 1, 0]], [[1, 1, 0, 0]]).estimate
    0.25
    """
    minuend, subtrahend = (_functional(measure, arrays, options, groups) for arrays in (first, second))
    if minuend.sizes != subtrahend.sizes:
        raise InputError(
            f"second has {subtrahend.sizes} points, but first has {minuend.sizes}: a paired difference needs the same"
        )
    low, high = minuend.bounds

    def under(*weights: Array) -> Array:
        return minuend.under(*weights) - subtrahend.under(*weights)

    covered = minuend.interval == "basic"
    difference = Functional(minuend.sizes, under, (low - high, high - low), covered=covered)
    return resampled_band(difference, resamples=resamples, level=level, seed=seed, method=method).interval()


def bootstrap_band(
    measure: Callable[..., Array],
    *arrays: Any,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "auto",
    groups: Sequence[int] | None = None,
    **options: Any,
) -> Band:
    """Intervals, one per entry, of a measure that returns an array, such as `bin_accuracy` or `selective_risk`.

    Each entry is covered with probability `level`, the whole curve with less. Arguments as of `bootstrap`.
    """
    functional = _functional(measure, arrays, options, groups)
    return resampled_band(functional, resamples=resamples, level=level, seed=seed, method=method)


def _functional(
    measure: Callable[..., Any], arrays: Sequence[Any], options: dict[str, Any], groups: Sequence[int] | None
) -> Functional:
    if not is_measure(measure):
        return looped(measure, arrays, options, groups)
    if groups is not None:
        raise InputError("groups is for functions of your own: this measure knows which arrays belong together")
    return functional_of(measure, *arrays, **options)


def looped(
    measure: Callable[..., Any], arrays: Sequence[Any], options: Mapping[str, Any], groups: Sequence[int] | None
) -> Functional:
    """A function of arrays as a functional of integer counts: a point that counts twice is passed twice."""
    values = [value if checks.is_tensor(value) else np.asarray(value) for value in arrays]
    sample = list(groups) if groups is not None else [0] * len(values)
    if len(sample) != len(values) or not values:
        raise InputError(f"groups must name the sample of each of the {len(values)} arrays")
    names = sorted(set(sample))
    lengths = [{len(value) for value, group in zip(values, sample) if group == name} for name in names]
    if any(len(distinct) > 1 or 0 in distinct for distinct in lengths):
        raise InputError(
            "arrays resampled together must be non-empty and of one length; use groups for separate samples"
        )

    def under(*weights: Array) -> Array:
        results = []
        for counts in zip(*weights):
            index = [np.repeat(np.arange(len(count)), count.astype(np.int64)) for count in counts]
            results.append(measure(*(value[index[names.index(g)]] for value, g in zip(values, sample)), **options))
        return np.asarray(results, np.float64)

    return Functional(tuple(distinct.pop() for distinct in lengths), under, (-np.inf, np.inf))
