"""Calibration: does confidence r mean right with probability r?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from calibrant import InputError
from calibrant.metrics.arguments import confidence_and_correct, probabilities_and_labels
from calibrant.metrics.bins import bin_edges, bin_index, checked_bins
from calibrant.metrics.declarations import measure
from calibrant.metrics.few_errors import accuracy_reach, lipschitz_reach
from calibrant.metrics.functional import (
    Array,
    Functional,
    Indices,
    Terms,
    absolute_terms,
    array,
    bin_sums,
    curve,
    divide,
    indices,
    mean_of,
    weighted,
)

Binning = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityDiagram:
    """Per bin m: the bounds `edges[m]`, `edges[m + 1]`, mean `confidence`, `accuracy` and `count`; NaN where empty."""

    edges: Array
    confidence: Array
    accuracy: Array
    count: Indices

    @classmethod
    def from_sums(cls, edges: Array, confidence: Array, correct: Array, count: Array) -> ReliabilityDiagram:
        """From the sums of confidence and correctness over each bin."""
        return cls(edges, divide(confidence, count), divide(correct, count), count.astype(np.int64))

    @property
    def gap(self) -> Array:
        """|accuracy - confidence| per bin, NaN where empty."""
        return np.abs(self.accuracy - self.confidence)

    @property
    def calibration_error(self) -> float:
        """The ECE: sum_m count_m / n gap_m."""
        share = self.count / max(self.count.sum(), 1)
        return float(np.nansum(share * self.gap)) if self.count.any() else float("nan")


def reliability_diagram(
    confidence: Any, correct: Any, bins: int = 15, *, binning: Binning = "width"
) -> ReliabilityDiagram:
    """Mean confidence and accuracy per bin.

    `confidence` (n,) in [0, 1], `correct` (n,) of 0 and 1. `binning="width"`: M bins ((m - 1) / M, m / M], the first
    with 0. `binning="mass"`: bins between the m / M quantiles, about n / M points each; ties share a bin.

    >>> diagram = reliability_diagram([0.3, 0.9, 0.8], [0, 1, 1], bins=2)
    >>> diagram.accuracy, diagram.count
    (array([0., 1.]), array([1, 2]))
    """
    level, right = confidence_and_correct(confidence, correct)
    value = array(level)
    ones = np.ones((1, len(value)))
    index = binner(level, bins, binning)(ones)
    sums = [bin_sums(index, w[None], bins)[0] for w in (value, right, ones[0])]
    edges = bin_edges(bins)
    if binning == "mass":
        top = np.zeros(bins)
        np.maximum.at(top, index[0], value)
        edges = np.concatenate([[0.0], np.maximum.accumulate(top)[:-1], [1.0]])
    return ReliabilityDiagram.from_sums(edges, *sums)


@curve
def bin_accuracy(confidence: Any, correct: Any, bins: int = 15, *, binning: Binning = "width") -> Functional:
    """The accuracies of the reliability diagram, (bins,), NaN where empty: for a band around the diagram."""
    level, right = confidence_and_correct(confidence, correct)
    assign = binner(level, bins, binning)

    def under(weights: Array) -> Array:
        index = assign(weights)
        return divide(bin_sums(index, weights * right, bins), bin_sums(index, weights, bins))

    return Functional((len(right),), under)


@weighted
def mean_gap(confidence: Any, correct: Any) -> Functional:
    """Mean confidence minus accuracy, in [-1, 1]: positive where it is overconfident on the whole.

    `confidence` (n,) in [0, 1], `correct` (n,). Where few answers are wrong, or few are right, its interval reaches as
    far as Wilson's of the accuracy does to the other side: where the accuracy may be lower, the gap may be higher.

    >>> mean_gap([0.9, 0.8], [1, 1])
    -0.15
    """
    level, right = confidence_and_correct(confidence, correct)

    def reach(confidence_level: float, base: Array) -> Array:
        lower, higher = accuracy_reach(float(base[0] @ right), float(base.sum()), confidence_level)
        return np.array([higher, lower])

    return replace(mean_of(array(level) - right, (-1.0, 1.0)), reach=reach)


@measure("ECE", "lower", "percent", "expected calibration error of the accepted ID inputs", name="ece", position=12)
@measure(
    "ECE, equal mass", "lower", "percent", "ECE of the accepted ID inputs in bins of equal mass",
    name="ece_mass", options={"binning": "mass"}, show="page", position=60,
)  # fmt: skip
@weighted
def expected_calibration_error(
    confidence: Any, correct: Any, bins: int = 15, *, binning: Binning = "width"
) -> Functional:
    """ECE = sum_m |B_m| / n |acc(B_m) - conf(B_m)|, in [0, 1]; bins as in `reliability_diagram`.

    Biased upwards, the more the fewer points a bin has: compare only at equal n and equal bins. Its interval is of the
    binned population ECE, sum_m |E[(c - r) 1(r in B_m)]|, with equal mass in the bins that the sample has. That
    changes by at most E|c - c'| when outcomes c become c', so where few answers are wrong, or few are right, its
    interval is extended by Wilson's of the accuracy (`calibrant.metrics.few_errors`).

    >>> expected_calibration_error([0.3, 0.9, 0.8], [0, 1, 1], bins=2)
    0.2
    """
    level, right = confidence_and_correct(confidence, correct)
    assign, residual = binner(level, bins, binning), right - array(level)

    def under(weights: Array) -> Array:
        return divide(np.abs(bin_sums(assign(weights), weights * residual, bins)).sum(1), weights.sum(1))

    def terms(base: Array) -> Callable[..., list[Terms]]:
        index = assign(base).ravel()
        return absolute_terms(
            lambda weights: divide(bin_sums(index, weights * residual, bins), weights.sum(1)[:, None])
        )(base)

    return Functional((len(residual),), under, terms=terms, reach=lipschitz_reach(right))


@weighted
def maximum_calibration_error(
    confidence: Any, correct: Any, bins: int = 15, *, binning: Binning = "width"
) -> Functional:
    """MCE = max_m |acc(B_m) - conf(B_m)| over the bins that hold a point, in [0, 1].

    >>> maximum_calibration_error([0.3, 0.9, 0.8], [0, 1, 1], bins=2)
    0.3
    """
    level, right = confidence_and_correct(confidence, correct)
    assign, residual = binner(level, bins, binning), right - array(level)

    def under(weights: Array) -> Array:
        index = assign(weights)
        count = bin_sums(index, weights, bins)
        gap = np.abs(bin_sums(index, weights * residual, bins)) / np.where(count > 0, count, 1)
        return np.where(count.sum(1) > 0, gap.max(1), np.nan)

    return Functional((len(residual),), under)


@weighted
def classwise_calibration_error(probabilities: Any, labels: Any, bins: int = 15) -> Functional:
    """The mean over classes c of the ECE of p_c as the probability of class c, in [0, 1].

    `probabilities` (n, C), `labels` (n,). Of many classes most p_c lie near 0, and so does this mean. Another label
    changes the outcomes of two classes: where few answers are wrong, its interval is extended by 2 / C of what Wilson's
    interval allows beyond the sample accuracy (`calibrant.metrics.few_errors`).

    >>> classwise_calibration_error([[0.9, 0.1], [0.2, 0.8]], [0, 0], bins=2)
    0.45
    """
    from scipy.sparse import csr_array

    p, target = probabilities_and_labels(probabilities, labels)
    value = array(p)
    (n, classes), rows = value.shape, np.arange(len(value))
    cell = indices(bin_index(p, checked_bins(bins))) + bins * np.arange(classes)
    residual = -value
    residual[rows, target] += 1
    ends = np.arange(0, n * classes + 1, classes)
    table = csr_array((residual.ravel(), cell.ravel(), ends), shape=(n, classes * bins)).T.tocsr()

    def gaps(weights: Array) -> Array:
        """(R, C bins): of each class and bin, the weighted sum of [y = c] - p_c, divided by C and the total weight."""
        return divide(np.asarray(table @ weights.T).T / classes, weights.sum(1)[:, None])

    reach = lipschitz_reach((value.argmax(1) == target).astype(np.float64), 2 / classes)
    return Functional((n,), lambda weights: np.abs(gaps(weights)).sum(1), terms=absolute_terms(gaps), reach=reach)


def binner(confidence: Any, bins: int, binning: Binning) -> Callable[[Array], Indices]:
    """A function from weights (R, n) to the bin of each point, (n,) or, where the weights decide, (R, n)."""
    checked_bins(bins)
    if binning == "width":
        fixed = indices(bin_index(confidence, bins))
        return lambda weights: fixed
    if binning != "mass":
        raise InputError(f'binning must be "width" or "mass", not {binning!r}')
    order = np.argsort(array(confidence), kind="stable")
    ordered = array(confidence)[order]
    first = np.searchsorted(ordered, ordered)

    def by_mass(weights: Array) -> Indices:
        through = np.cumsum(weights[:, order], axis=1)
        below = np.concatenate([np.zeros((len(weights), 1)), through], axis=1)[:, first]
        total = np.where(through[:, -1:] > 0, through[:, -1:], 1)  # a row without weight has no bins
        index = np.empty(weights.shape, np.int64)
        index[:, order] = np.minimum(np.floor(bins * below / total), bins - 1)
        return index

    return by_mass
