"""Selective prediction: what holds of the points that are accepted at a coverage.

Points are accepted in falling order of their `acceptance` (a selector's output, or the confidence itself), tied ones
together. A coverage xi stands for the smallest achievable coverage that is at least xi.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import checks
from calibrant.metrics.calibration import Binning, binned_error
from calibrant.metrics.functional import Array, Functional, array, bin_sums, mean_of, measure
from calibrant.metrics.inputs import confidence_and_correct, fraction, scores

Rule = Callable[[Array], Array]


def threshold_rule(acceptance: Array, coverage: float) -> Rule:
    """A function from weights (R, n) to the thresholds (R,) at which `acceptance` >= threshold covers `coverage`.

    Coverage 1 means that nothing is rejected, be it like these points or not: its threshold is minus infinity.
    """
    goal = fraction("coverage", coverage)
    falling, level = np.unique(-acceptance, return_inverse=True)

    def thresholds(weights: Array) -> Array:
        if goal == 1:
            return np.full(len(weights), -np.inf)
        covered = np.cumsum(bin_sums(level, weights, len(falling)), axis=1)
        result: Array = -falling[(covered / covered[:, -1:] >= goal).argmax(1)]
        return result

    return thresholds


def threshold_at_coverage(acceptance: Any, coverage: float) -> float:
    """The threshold tau such that accepting `acceptance` >= tau, (n,), gives the smallest coverage >= `coverage`.

    At coverage 1 it is minus infinity: everything is accepted, on any data.

    >>> threshold_at_coverage([0.9, 0.8, 0.8, 0.1], 0.5)
    0.8
    """
    value = scores("acceptance", acceptance)
    return float(threshold_rule(value, coverage)(np.ones((1, len(value))))[0])


@measure
def coverage(acceptance: Any, threshold: float) -> Functional:
    """The fraction of points with `acceptance` >= `threshold`.

    >>> coverage([0.9, 0.8, 0.8, 0.1], 0.8)
    0.75
    """
    if np.isnan(threshold):
        raise ValueError("threshold is NaN")
    return mean_of((scores("acceptance", acceptance) >= threshold).astype(np.float64), (0.0, 1.0))


@measure
def selective_accuracy(confidence: Any, correct: Any, acceptance: Any = None, *, coverage: float) -> Functional:
    """The accuracy of the points accepted at `coverage`, by `acceptance` (n,) or by the confidence (n,) itself.

    >>> selective_accuracy([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0], coverage=0.5)
    1.0
    """
    _, right = confidence_and_correct(confidence, correct)
    return _accepted(mean_of(right, (0.0, 1.0)), _acceptance(confidence, acceptance), coverage)


@measure
def selective_calibration_error(
    confidence: Any,
    correct: Any,
    acceptance: Any = None,
    *,
    coverage: float,
    bins: int = 15,
    binning: Binning = "width",
) -> Functional:
    """The ECE of the points accepted at `coverage`, by `acceptance` (n,) or by the confidence (n,) itself.

    >>> selective_calibration_error([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0], coverage=0.25)
    0.1
    """
    whole = binned_error(confidence, correct, bins, binning)
    return _accepted(whole, _acceptance(confidence, acceptance), coverage)


@dataclass(frozen=True)
class Selective:
    """What holds at a coverage: the `threshold`, the `coverage` achieved, how many are accepted, how well they do."""

    threshold: float
    coverage: float
    accepted: int
    accuracy: float
    calibration_error: float


def selective(confidence: Any, correct: Any, acceptance: Any = None, *, coverage: float, bins: int = 15) -> Selective:
    """Accuracy and ECE of the points accepted at `coverage`, with what was achieved.

    `confidence` and `correct` (n,); `acceptance` (n,), larger is accepted first, by default the confidence.

    >>> selective([0.9, 0.8, 0.8, 0.6], [1, 1, 0, 0], coverage=0.5)
    Selective(threshold=0.8, coverage=0.75, accepted=3, accuracy=0.667, calibration_error=0.233)
    """
    order = _acceptance(confidence, acceptance)
    threshold = threshold_at_coverage(order, coverage)
    accepted = int((order >= threshold).sum())
    return Selective(
        threshold=threshold,
        coverage=accepted / len(order),
        accepted=accepted,
        accuracy=selective_accuracy(confidence, correct, order, coverage=coverage),
        calibration_error=selective_calibration_error(confidence, correct, order, coverage=coverage, bins=bins),
    )


def _acceptance(confidence: Any, acceptance: Any) -> Array:
    level = checks.unit_interval("confidence", confidence)
    if acceptance is None:
        return array(level)
    value = scores("acceptance", acceptance)
    checks.same_length("acceptance", checks.tensor("acceptance", value), "confidence", level)
    return value


def _accepted(whole: Functional, acceptance: Array, coverage: float) -> Functional:
    """A functional of the accepted points alone: those below the threshold count nothing."""
    rule = threshold_rule(acceptance, coverage)

    def under(weights: Array) -> Array:
        return whole.under(weights * (acceptance >= rule(weights)[:, None]))

    return Functional(whole.sizes, under, whole.bounds)
