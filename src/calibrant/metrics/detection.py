"""Ranking measures of OOD detection: scores are larger the more outlying.

scikit-learn computes the same curves for one weighting at a time; here one sort serves every resample of a bootstrap.
The tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from calibrant import InputError
from calibrant.metrics.arguments import fraction, scores
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, weighted
from calibrant.metrics.ordering import Ordered, cumulated, falling, first_reaching, shared, steps

PositiveClass = Literal["ood", "id"]


@measure("AUROC", "higher", "percent", "of the OOD score, accepted inputs", of="accepted ID and OOD", position=40)
@weighted
def auroc(id_scores: Any, ood_scores: Any) -> Functional:
    """The probability that an OOD point (k,) scores above an ID point (n,), a tie counting one half.

    >>> auroc([0.1, 0.2, 0.5], [0.3, 0.9])
    0.833
    """

    def area(hits: Array, false_alarms: Array) -> Array:
        pairs = steps(false_alarms) * (hits - steps(hits) / 2)
        result: Array = pairs.sum(1) / (hits[:, -1] * false_alarms[:, -1])
        return result

    return _ranking(id_scores, ood_scores, "ood", area)


@weighted
def aupr(id_scores: Any, ood_scores: Any, *, positive: PositiveClass = "ood") -> Functional:
    """The average precision, sum over thresholds of (recall gained) x precision, `positive` being what is to be found.

    It depends on the ratio of OOD to ID points; a random score gives the share of positives.

    >>> aupr([0.1, 0.2, 0.5], [0.3, 0.9])
    0.833
    """

    def average_precision(hits: Array, false_alarms: Array) -> Array:
        precision = hits / np.maximum(hits + false_alarms, np.finfo(float).tiny)
        result: Array = (steps(hits) * precision).sum(1) / hits[:, -1]
        return result

    return _ranking(id_scores, ood_scores, positive, average_precision)


@measure(
    "FPR95", "lower", "percent", "share of ID inputs flagged where 95 % of the OOD inputs are, accepted inputs",
    of="accepted ID and OOD", name="fpr95", show="markdown", position=41,
)  # fmt: skip
@weighted
def fpr_at_tpr(id_scores: Any, ood_scores: Any, tpr: float = 0.95, *, positive: PositiveClass = "ood") -> Functional:
    """The smallest false-positive rate at a true-positive rate of at least `tpr`.

    `positive="ood"`: the share of ID points flagged by the threshold that flags 95 % of the OOD points.
    `positive="id"`, as many papers count: the share of OOD points let pass where 95 % of the ID points pass.

    >>> fpr_at_tpr([0.1, 0.2, 0.5], [0.3, 0.9])
    0.333
    """
    goal = fraction("tpr", tpr)

    def rate(hits: Array, false_alarms: Array) -> Array:
        first = first_reaching(hits / hits[:, -1:], [goal])
        return np.take_along_axis(false_alarms, first, axis=1)[:, 0] / false_alarms[:, -1]

    return _ranking(id_scores, ood_scores, positive, rate)


def _ranking(
    id_scores: Any, ood_scores: Any, positive: PositiveClass, summary: Callable[[Array, Array], Array]
) -> Functional:
    """`summary(hits, false_alarms)`: the positives and negatives (R, G) flagged down to each distinct score."""
    if positive not in ("ood", "id"):
        raise InputError(f'positive must be "ood" or "id", not {positive!r}')
    inside, outside = scores("id_scores", id_scores), scores("ood_scores", ood_scores)
    flagged = _flagged(inside, outside) if positive == "ood" else _flagged(-inside, -outside)

    def under(id_weights: Array, ood_weights: Array) -> Array:
        ids, oods = flagged(id_weights, ood_weights)
        return summary(oods, ids) if positive == "ood" else summary(ids, oods)

    return Functional((len(inside), len(outside)), under)


@shared
def _flagged(inside: Array, outside: Array) -> Ordered:
    """A function from weights to the ID and OOD points (R, G) down to each of the G distinct scores, falling."""
    levels, place = falling(np.concatenate([inside, outside]))

    def under(id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        ids = cumulated(place[: len(inside)], id_weights, len(levels))
        return ids, cumulated(place[len(inside) :], ood_weights, len(levels))

    return under
