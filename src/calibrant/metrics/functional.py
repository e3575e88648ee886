"""A measure as a function of how much each point counts.

Every measure here depends on its points only through their empirical distribution. So it is written once, as a
`Functional`: prepare the points (check, sort, bin), then evaluate under any weights, many weightings at a time. The
measure itself is the functional under equal weights; a bootstrap is the same functional under resampling counts.
Everything is computed in float64 on the CPU, whatever comes in.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

import numpy as np
import numpy.typing as npt

from calibrant import checks

P = ParamSpec("P")
Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Bounds = tuple[float | Array, float | Array]
Terms = tuple[Array, Array]
"""Of a value that is a sum of norms, under R weightings: what is added to them (R,), and the vectors (R, G, D)."""


@dataclass(frozen=True)
class Functional:
    """`under(*weights)` maps one (R, n) array of weights per independent sample to R values, shape (R,) or (R, k).

    `sizes` holds n for each sample; `bounds` the range in which the true quantity lies, one for all k values or (k,).
    A measure that is a sum of norms, such as the ECE, has `terms`: `terms(*base)`, with the weights (1, n) of the data
    themselves, which fix bins and bandwidths, gives a function from weights to the `Terms` of each of its k values.
    Their norms add up to the value, or where the estimate is bias-corrected, to the one that is not: see `norm_limits`.
    `covered=False` says that no interval of ours holds its truth as often as it should; it then has none.
    `reach(level, *base)`, (2,) or (2, k), says how far the truth may lie below and above the value although no resample
    shows it, because few answers are wrong or few are right: see `few_errors`.
    """

    sizes: tuple[int, ...]
    under: Callable[..., Array]
    bounds: Bounds = (0.0, 1.0)
    terms: Callable[..., Callable[..., list[Terms]]] | None = None
    covered: bool = True
    reach: Callable[..., Array] | None = None

    @property
    def interval(self) -> Literal["norms", "basic", "none"]:
        """How its interval is made."""
        return "none" if not self.covered else "basic" if self.terms is None else "norms"

    def value(self, counts: Sequence[Array] | None = None) -> Array:
        """The measure itself: under equal weights, or with `counts` (n,) for each sample where rows stand for many."""
        weights = [np.ones(size) for size in self.sizes] if counts is None else counts
        return np.asarray(self.under(*(row[None] for row in weights))[0])


MANY_ROWS = 8
"""The number of weightings from which on sorting the points first pays."""
_FEW_BINS = 64
_BUILDERS: dict[Callable[..., Any], Callable[..., Functional]] = {}


def weighted(build: Callable[P, Functional]) -> Callable[P, float]:
    """Turn a function that builds a `Functional` into the measure that evaluates it."""

    @functools.wraps(build)
    def evaluate(*args: P.args, **kwargs: P.kwargs) -> float:
        return float(build(*args, **kwargs).value())

    return _registered(evaluate, build, "float")


def curve(build: Callable[P, Functional]) -> Callable[P, Array]:
    """The same for a measure of several numbers."""

    @functools.wraps(build)
    def evaluate(*args: P.args, **kwargs: P.kwargs) -> Array:
        return build(*args, **kwargs).value()

    return _registered(evaluate, build, "Array")


def _registered(evaluate: Callable[P, Any], build: Callable[P, Functional], returns: str) -> Callable[P, Any]:
    signature = inspect.signature(build).replace(return_annotation=returns)
    setattr(evaluate, "__signature__", signature)  # noqa: B010 - a function's type does not declare it
    _BUILDERS[evaluate] = build
    return evaluate


def is_measure(function: Callable[..., Any]) -> bool:
    """Whether `function` is one of our measures, which have a functional."""
    return function in _BUILDERS


def functional_of(measure: Callable[..., Any], *arrays: Any, **options: Any) -> Functional:
    """The functional whose value is `measure(*arrays, **options)`, for one of our measures."""
    return _BUILDERS[measure](*arrays, **options)


def array(values: Any) -> Array:
    """The values of a tensor or an array in float64, on the CPU."""
    result: Array = values.detach().cpu().double().numpy() if checks.is_tensor(values) else np.asarray(values, float)
    return result


def indices(values: Any) -> Indices:
    """The integers of a tensor or an array in int64, on the CPU."""
    result: Indices = values.detach().cpu().long().numpy() if checks.is_tensor(values) else np.asarray(values, np.int64)
    return result


def divide(numerator: Array, denominator: Array) -> Array:
    """The quotient, NaN where the denominator is 0: a mean over no points is undefined."""
    empty = denominator == 0
    return np.where(empty, np.nan, numerator / np.where(empty, 1, denominator))


def mean_of(values: Array, bounds: tuple[float, float]) -> Functional:
    """The weighted mean of one value per point; infinite as soon as an infinite value counts."""
    infinite = np.isinf(values)
    finite = np.where(infinite, 0, values)

    def under(weights: Array) -> Array:
        mean = divide(weights @ finite, weights.sum(1))
        return np.where(weights @ infinite > 0, np.inf, mean) if infinite.any() else mean

    return Functional((len(values),), under, bounds)


def stacked(parts: Sequence[Functional]) -> Functional:
    """Sums of norms of one number each, of the same samples, as one functional of k values."""

    def under(*weights: Array) -> Array:
        return np.stack([part.under(*weights) for part in parts], axis=1)

    def terms(*base: Array) -> Callable[..., list[Terms]]:
        found = [part.terms(*base) for part in parts if part.terms]
        return lambda *weights: [one for alone in found for one in alone(*weights)]

    def reach(level: float, *base: Array) -> Array:
        return np.stack([part.reach(level, *base) if part.reach else np.zeros(2) for part in parts], axis=1)

    return Functional(parts[0].sizes, under, parts[0].bounds, terms, reach=reach)


def absolute_terms(vector: Callable[..., Array]) -> Callable[..., Callable[..., list[Terms]]]:
    """The `terms` of a measure that is the sum of the absolute values of `vector(*weights)`, (R, M)."""

    def under(*weights: Array) -> list[Terms]:
        parts = vector(*weights)
        return [(np.zeros(len(parts)), parts[:, :, None])]

    return lambda *base: under


def bin_sums(index: Indices, weights: Array, bins: int) -> Array:
    """Sums (R, bins) of the weights (R, n) by bin; `index` (n,) or (R, n) says which bin a point is in."""
    rows = len(weights)
    if index.ndim == 1 and rows >= MANY_ROWS and bins <= _FEW_BINS:
        return _sorted_sums(index, weights, bins)
    flat = index + bins * np.arange(rows)[:, None]
    sums: Array = np.bincount(flat.ravel(), weights.ravel(), minlength=rows * bins).astype(np.float64, copy=False)
    return sums.reshape(rows, bins)


def _sorted_sums(index: Indices, weights: Array, bins: int) -> Array:
    """`bin_sums` of many weightings: the points of each bin are added in their order, as `np.bincount` adds them."""
    order = np.argsort(index, kind="stable")
    ends = np.searchsorted(index[order], np.arange(bins), side="right").tolist()
    ordered, sums = weights.take(order, axis=1), np.zeros((len(weights), bins))
    for place, (start, end) in enumerate(zip([0, *ends], ends)):
        if start < end:
            sums[:, place] = ordered[:, start:end].cumsum(axis=1)[:, -1]
    return sums
