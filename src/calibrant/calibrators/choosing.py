"""Which calibrator to take: folds for cross-fitting, and the simplest one that no other beats measurably."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.calibrators.fits import Fit, Floats

FoldMasks = tuple[NDArray[np.bool_], NDArray[np.bool_]]


def fold_numbers(n: int, folds: int, seed: int) -> NDArray[np.int64]:
    """The fold 0 .. folds - 1 of each of n rows, at random, as equal in size as can be."""
    numbers: NDArray[np.int64] = np.random.default_rng(seed).permutation(n) % folds
    return numbers


def splits(fold: NDArray[np.int64]) -> Iterator[FoldMasks]:
    """For each fold, the rows to fit and the rows held out, (N,) each."""
    for number in range(int(fold.max()) + 1):
        yield fold != number, fold == number


def cross_fitted(how: Fit, z: Floats, y: NDArray[np.int64], fold: NDArray[np.int64]) -> Floats:
    """Probabilities (N, C), those of each fold by what was fitted to the others."""
    result = np.empty(z.shape)
    for fitting, held_out in splits(fold):
        result[held_out] = how.probabilities(z[held_out], how.fit(z[fitting], y[fitting]))
    return result


def simplest_best(losses: Mapping[str, Floats]) -> str:
    """The first of `losses` (N,), which go from simple to complex, that no later one beats measurably.

    A later one takes the place of an earlier one if its mean is lower by more than one standard error of the
    difference, row by row.

    >>> simplest_best({"none": np.array([1.0, 1.0, 1.2]), "other": np.array([0.5, 0.6, 0.7])})
    'other'
    >>> simplest_best({"none": np.array([1.0, 1.0, 1.2]), "other": np.array([0.5, 1.1, 1.5])})
    'none'
    """
    best, *others = losses
    for name in others:
        gain = losses[best] - losses[name]
        if gain.mean() > max(gain.std() / np.sqrt(len(gain)), 1e-9):
            best = name
    return best


def log_loss_rows(probabilities: Floats, labels: NDArray[Any]) -> Floats:
    """-log p_y, (N,); a probability of 0 counts as 2.2e-16, the rounding of float64."""
    own = probabilities[np.arange(len(labels)), labels]
    result: Floats = -np.log(np.maximum(own, np.finfo(np.float64).eps))
    return result
