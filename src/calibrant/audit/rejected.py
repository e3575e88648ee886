"""What a confidence threshold would gain: fewer errors for fewer answers, the threshold chosen on other rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.paired import Bench, Paired
from calibrant.audit.sample import Sample
from calibrant.calibrators.choosing import fold_numbers, splits
from calibrant.evaluation import Resampling
from calibrant.metrics.functional import Array

COVERAGES = (0.9, 0.8, 0.5)
TOLERATED = (0.05, 0.02, 0.01)
EVERYTHING = "error"


def measure_thresholds(sample: Sample, how: Resampling, *, folds: int) -> Paired:
    """Errors and coverages of thresholds on the confidence that were chosen on the other folds.

    By name: `error`, of all answers; for each of `COVERAGES`, "error at 90 % coverage"; for each of `TOLERATED` below
    the error of all answers, "coverage at 1 % error" and "error at 1 % error", the one that was reached.
    """
    wrong = sample.wrong
    fold = fold_numbers(len(sample), folds, how.seed)
    bench = Bench()
    every = np.ones(len(sample))
    bench.share(EVERYTHING, wrong, every)
    for goal in COVERAGES:
        taken = _cross_accepted(sample.confidence, wrong, fold, coverage=goal)
        bench.share(f"error at {100 * goal:.0f} % coverage", wrong, taken)
    for goal in TOLERATED:
        if goal < wrong.mean():
            taken = _cross_accepted(sample.confidence, wrong, fold, error=goal)
            bench.share(f"coverage at {100 * goal:.0f} % error", taken, every)
            bench.share(f"error at {100 * goal:.0f} % error", wrong, taken)
    return bench.run(how)


def threshold_of(
    confidence: Array, wrong: Array, *, coverage: float | None = None, error: float | None = None
) -> float:
    """The highest threshold that accepts the share `coverage`, or the lowest at which the error is at most `error`.

    Infinite where no threshold reaches that error.

    >>> threshold_of(np.array([0.9, 0.8, 0.7, 0.6]), np.array([0.0, 0.0, 1.0, 0.0]), error=0.25)
    0.6
    """
    order = np.argsort(-confidence, kind="stable")
    level = confidence[order]
    if coverage is not None:
        return float(level[max(int(np.ceil(coverage * len(level) - 1e-9)), 1) - 1])
    ends = np.flatnonzero(np.append(level[1:] != level[:-1], True))  # the last row of every group of ties
    risk = np.cumsum(wrong[order])[ends] / (ends + 1)
    fine = np.flatnonzero(risk <= (error or 0.0))
    return float(level[ends[fine[-1]]]) if len(fine) else float("inf")


def _cross_accepted(confidence: Array, wrong: Array, fold: NDArray[np.int64], **goal: float) -> Array:
    """Whether each row is answered (n,), by the threshold of the other folds."""
    taken = np.zeros(len(confidence))
    for fitting, held_out in splits(fold):
        taken[held_out] = confidence[held_out] >= threshold_of(confidence[fitting], wrong[fitting], **goal)
    return taken
