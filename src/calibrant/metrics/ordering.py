"""Points in falling order of a score: distinct values, what weighs down to each, where a goal is first reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.metrics.functional import Array, Indices, bin_sums


def falling(values: Array) -> tuple[Array, Indices]:
    """The distinct values (G,), falling, and the place of each of the values (n,) among them.

    >>> falling(np.array([0.8, 0.1, 0.8]))
    (array([0.8, 0.1]), array([0, 1, 0]))
    """
    rising, place = np.unique(-values, return_inverse=True)
    return -rising, place


def cumulated(place: Indices, weights: Array, length: int) -> Array:
    """(R, length): the weights (R, n) of all points up to each place, as of `falling`."""
    sums: Array = np.cumsum(bin_sums(place, weights, length), axis=1)
    return sums


def first_reaching(rising: Array, goals: Sequence[float] | Array) -> Indices:
    """(R, K): where each row of `rising` (R, G) first reaches each of K goals, none of them above its last entry."""
    return np.stack([(rising >= goal).argmax(1) for goal in goals], axis=1)
