"""Points in falling order of a score: distinct values, what weighs down to each, where a goal is first reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.metrics.functional import MANY_ROWS, Array, Indices, bin_sums


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
