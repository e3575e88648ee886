"""Points in falling order of a score: distinct values, what weighs down to each, where a goal is first reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from calibrant.metrics.functional import MANY_ROWS, Array, Indices, bin_sums

Ordered = Callable[..., tuple[Array, ...]]
"""A function from weights (R, n) of one sample or several to what it sums up along an order of the points."""
MOST_SHARED = 50_000
"""Of more points nothing is kept."""


def shared(build: Callable[..., Ordered]) -> Callable[..., Ordered]:
    """Decorator: measures of the same arrays share one sort, and what was summed up under the last weights.

    A table asks for the area under a curve and for points on it, of the same inputs in the same resamples. What `build`
    returns for equal arrays (n,) is kept for the next measure, and that function keeps its last result.
    """
    kept: dict[tuple[bytes, ...], Ordered] = {}

    def built(*arrays: Array) -> Ordered:
        if sum(map(len, arrays)) > MOST_SHARED:
            return build(*arrays)
        key = tuple(np.ascontiguousarray(values).tobytes() for values in arrays)
        if key not in kept:
            while len(kept) >= _FEW:
                kept.pop(next(iter(kept)), None)
            kept[key] = _remembering(build(*arrays))
        return kept[key]

    return built


def _remembering(under: Ordered) -> Ordered:
    last: tuple[tuple[Array, ...], tuple[Array, ...]] | None = None

    def remembered(*weights: Array) -> tuple[Array, ...]:
        nonlocal last
        known = last
        if known is not None and all(one is other for one, other in zip(known[0], weights)):
            return known[1]
        found = under(*weights)
        last = (weights, found) if sum(part.size for part in weights) <= _MOST_WEIGHTS else None
        return found

    return remembered


_FEW = 4
_MOST_WEIGHTS = 2**20


def falling(values: Array) -> tuple[Array, Indices]:
    """The distinct values (G,), falling, and the place of each of the values (n,) among them.

    >>> falling(np.array([0.8, 0.1, 0.8]))
    (array([0.8, 0.1]), array([0, 1, 0]))
    """
    rising, place = np.unique(-values, return_inverse=True)
    return -rising, place


def cumulated(place: Indices, weights: Array, length: int) -> Array:
    """(R, length): the weights (R, n) of all points up to each place, as of `falling`."""
    if len(weights) < MANY_ROWS:
        sums: Array = np.cumsum(bin_sums(place, weights, length), axis=1)
        return sums
    order = np.argsort(place, kind="stable")
    through = np.zeros((len(weights), len(place) + 1))
    np.cumsum(weights.take(order, axis=1), axis=1, out=through[:, 1:])
    ends = np.searchsorted(place[order], np.arange(length), side="right")
    return through[:, 1:] if np.array_equal(ends, np.arange(1, len(place) + 1)) else through.take(ends, axis=1)


def steps(rising: Array) -> Array:
    """(R, G): what each entry of `rising` adds to the one before it, the first to 0."""
    added = np.empty_like(rising)
    added[:, 0] = rising[:, 0]
    np.subtract(rising[:, 1:], rising[:, :-1], out=added[:, 1:])
    return added


def first_reaching(rising: Array, goals: Sequence[float] | Array) -> Indices:
    """(R, K): where each row of `rising` (R, G) first reaches each of K goals, none of them above its last entry."""
    return np.stack([(rising >= goal).argmax(1) for goal in goals], axis=1)
