"""Selective prediction: what holds of the points that are accepted at a coverage.

Points are accepted in falling order of their `acceptance` (a selector's output, or the confidence itself), tied ones
together. A coverage xi stands for the smallest achievable coverage that is at least xi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.arguments import acceptance_or_confidence, confidence_and_correct, fraction, scores
from calibrant.metrics.calibration import Binning, expected_calibration_error
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, array, functional_of, mean_of, weighted
from calibrant.metrics.ordering import cumulated, falling, first_reaching

Rule = Callable[[Array], Array]


def threshold_rule(acceptance: Array, coverages: Sequence[float]) -> Rule:
    """A function from weights (R, n) to the thresholds (R, K) at which `acceptance` >= threshold covers K `coverages`.

    Coverage 1 means that nothing is rejected, be it like these points or not: its threshold is minus infinity.
    """
    goals = np.array([fraction("coverage", coverage) for coverage in coverages])
    levels, place = falling(acceptance)

    def thresholds(weights: Array) -> Array:
        covered = cumulated(place, weights, len(levels))
        return np.where(goals == 1, -np.inf, levels[first_reaching(covered / covered[:, -1:], goals)])

    return thresholds


def threshold_at_coverage(acceptance: Any, coverage: float) -> float:
    """The threshold tau such that accepting `acceptance` >= tau, (n,), gives the smallest coverage >= `coverage`.

    At coverage 1 it is minus infinity: everything is accepted, on any data.

    >>> threshold_at_coverage([0.9, 0.8, 0.8, 0.1], 0.5)
    0.8
    """
    value = scores("acceptance", acceptance)
    return float(threshold_rule(value, [coverage])(np.ones((1, len(value))))[0, 0])


@weighted
def coverage(acceptance: Any, threshold: float) -> Functional:
    """The fraction of points with `acceptance` >= `threshold`.

    >>> coverage([0.9, 0.8, 0.8, 0.1], 0.8)
    0.75
    """
    if np.isnan(threshold):
        raise InputError("threshold is NaN")
    return mean_of((scores("acceptance", acceptance) >= threshold).astype(np.float64), (0.0, 1.0))


@measure(
    "coverage", "neither", "percent", "share of the ID inputs that are accepted",
    of="all ID", name="coverage", short="accepted", position=10,
)  # fmt: skip
@weighted
def accepted_share(accepted: Any) -> Functional:
    """The fraction of points that are accepted; `accepted` (n,) of 0 and 1.

    >>> accepted_share([True, True, False, True])
    0.75
    """
    flags = checks.shaped("accepted", checks.values("accepted", accepted), dims=1)
    return mean_of((array(flags) != 0).astype(np.float64), (0.0, 1.0))


@weighted
def selective_accuracy(confidence: Any, correct: Any, acceptance: Any = None, *, coverage: float) -> Functional:
    """The accuracy of the points accepted at `coverage`, by `acceptance` (n,) or by the confidence (n,) itself.

    >>> selective_accuracy([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 0], coverage=0.5)
    1.0
    """
    _, right = confidence_and_correct(confidence, correct)
    return _accepted(mean_of(right, (0.0, 1.0)), acceptance_or_confidence(acceptance, confidence), coverage)


@weighted
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
    whole = functional_of(expected_calibration_error, confidence, correct, bins, binning=binning)
    return _accepted(whole, acceptance_or_confidence(acceptance, confidence), coverage)


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
    order = acceptance_or_confidence(acceptance, confidence)
    threshold = threshold_at_coverage(order, coverage)
    accepted = int((order >= threshold).sum())
    return Selective(
        threshold=threshold,
        coverage=accepted / len(order),
        accepted=accepted,
        accuracy=selective_accuracy(confidence, correct, order, coverage=coverage),
        calibration_error=selective_calibration_error(confidence, correct, order, coverage=coverage, bins=bins),
    )


def _accepted(whole: Functional, acceptance: Array, coverage: float) -> Functional:
    """A functional of the accepted points alone: those below the threshold count nothing."""
    rule = threshold_rule(acceptance, [coverage])

    def under(weights: Array) -> Array:
        return whole.under(weights * (acceptance >= rule(weights)))

    return Functional(whole.sizes, under, whole.bounds)
