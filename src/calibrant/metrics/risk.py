"""The risk (error rate) of the accepted points against coverage, and the area under that curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import InputError
from calibrant.metrics.arguments import acceptance_and_correct, fraction
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, curve, weighted
from calibrant.metrics.ordering import Ordered, cumulated, falling, first_reaching, shared, steps


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """One entry per distinct acceptance, falling: accepting down to `threshold` gives `coverage` and `risk`."""

    coverage: Array
    risk: Array
    threshold: Array


def risk_coverage(acceptance: Any, correct: Any) -> RiskCoverage:
    """The risk-coverage curve; `acceptance` (n,), larger is accepted first, tied points together; `correct` (n,).

    >>> risk_coverage([0.9, 0.8, 0.8, 0.1], [1, 1, 0, 0]).risk
    array([0. , 0.333, 0.5 ])
    """
    value, wrong = _inputs(acceptance, correct)
    covered, risk = _curve(value, wrong)(np.ones((1, len(value))))
    return RiskCoverage(covered[0], risk[0], falling(value)[0])


@measure(
    "AURC", "lower", "percent", "area under the curve of the error rate over coverage, all ID inputs",
    of="all ID", show="page", position=13,
)  # fmt: skip
@weighted
def aurc(acceptance: Any, correct: Any) -> Functional:
    """The area under the risk-coverage curve, sum of (coverage gained) x risk: lower is better, in [0, 1].

    Without ties the mean over k of the error rate of the k points accepted first. It mixes how many errors there are
    with how well they are ordered: compare at equal accuracy, or read it beside the accuracy.

    >>> aurc([0.9, 0.8, 0.7, 0.1], [1, 1, 0, 0])
    0.208
    """
    value, wrong = _inputs(acceptance, correct)
    curve_under = _curve(value, wrong)

    def under(weights: Array) -> Array:
        covered, risk = curve_under(weights)
        area: Array = (steps(covered) * risk).sum(1)
        return area

    return Functional((len(value),), under)


@measure(
    "AUGRC", "lower", "percent", "mean over coverage of the share of all ID inputs that are accepted and wrong",
    of="all ID", show="page", position=56,
)  # fmt: skip
@weighted
def augrc(acceptance: Any, correct: Any) -> Functional:
    """The area under the generalized risk-coverage curve (Traub et al., NeurIPS 2024): lower is better, in [0, 1/2].

    The generalized risk at a threshold is the probability that an input is accepted *and* wrong: risk x coverage. Its
    mean over coverage, by the trapezoidal rule from coverage 0, is the expected share of undetected failures. In the
    AURC errors among the first inputs accepted weigh most; here each error counts by the share of inputs accepted with
    it or after it. With accuracy a and A the AUROC of the acceptance as a detector of right answers,

        AUGRC = (1 - A) a (1 - a) + (1 - a)^2 / 2

    >>> augrc([0.9, 0.8, 0.7, 0.1], [1, 1, 0, 0])
    0.125
    """
    value, wrong = _inputs(acceptance, correct)
    curve_under = _curve(value, wrong)

    def under(weights: Array) -> Array:
        covered, risk = curve_under(weights)
        joint = covered * risk
        before = np.concatenate([np.zeros((len(joint), 1)), joint[:, :-1]], axis=1)
        area: Array = (steps(covered) * (joint + before)).sum(1) / 2
        return area

    return Functional((len(value),), under)


@curve
def selective_risk(acceptance: Any, correct: Any, coverages: Sequence[float]) -> Functional:
    """The risk at each of `coverages`, (len(coverages),): for a band around the curve.

    >>> selective_risk([0.9, 0.8, 0.7, 0.1], [1, 1, 0, 0], [0.5, 1.0])
    array([0. , 0.5])
    """
    value, wrong = _inputs(acceptance, correct)
    goals = [fraction("coverages", goal) for goal in coverages]
    if not goals:
        raise InputError("coverages is empty")
    curve_under = _curve(value, wrong)

    def under(weights: Array) -> Array:
        covered, risk = curve_under(weights)
        return np.take_along_axis(risk, first_reaching(covered, goals), axis=1)

    return Functional((len(value),), under)


def risk_under(acceptance: Any, correct: Any) -> tuple[Ordered, int]:
    """A function from weights (R, n) to coverage and risk (R, G) at each of the G distinct acceptances; and n."""
    value, wrong = _inputs(acceptance, correct)
    return _curve(value, wrong), len(value)


def _inputs(acceptance: Any, correct: Any) -> tuple[Array, Array]:
    value, right = acceptance_and_correct(acceptance, correct)
    return value, 1 - right


@shared
def _curve(acceptance: Array, wrong: Array) -> Ordered:
    """A function from weights (R, n) to coverage and risk (R, G) at each of the G distinct acceptances, falling."""
    levels, place = falling(acceptance)

    def under(weights: Array) -> tuple[Array, Array]:
        count, errors = (cumulated(place, part, len(levels)) for part in (weights, weights * wrong))
        return count / count[:, -1:], errors / np.maximum(count, np.finfo(float).tiny)

    return under
