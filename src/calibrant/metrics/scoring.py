"""Accuracy and the proper scoring rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant import checks
from calibrant.metrics.arguments import probabilities_and_labels
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Functional, array, mean_of, weighted


@measure("accuracy", "higher", "percent", "share of the accepted ID inputs that are answered rightly", position=11)
@weighted
def accuracy(correct: Any) -> Functional:
    """The fraction of right answers; `correct` (n,) of 0 and 1.

    >>> accuracy([1, 1, 0, 1])
    0.75
    """
    return mean_of(array(checks.measured.correctness("correct", correct)), (0.0, 1.0))


@weighted
def brier_score(probabilities: Any, labels: Any) -> Functional:
    """The mean over points of sum_c (p_c - 1[y = c])^2, in [0, 2]; `probabilities` (n, C), `labels` (n,).

    >>> brier_score([[0.5, 0.5], [1.0, 0.0]], [0, 0])
    0.25
    """
    rows, target = probabilities_and_labels(probabilities, labels)
    p = array(rows)
    hit = p[np.arange(len(p)), target]
    return mean_of((p**2).sum(1) - 2 * hit + 1, (0.0, 2.0))


@weighted
def negative_log_likelihood(probabilities: Any, labels: Any) -> Functional:
    """The mean over points of -log p_y, in nats; infinite if a true class was given probability 0.

    `probabilities` (n, C), `labels` (n,). A softmax in float32 rounds small probabilities to 0: take it in float64.

    >>> negative_log_likelihood([[0.5, 0.5], [0.25, 0.75]], [0, 0])
    1.0397
    """
    rows, target = probabilities_and_labels(probabilities, labels)
    hit = array(rows)[np.arange(len(target)), target]
    with np.errstate(divide="ignore"):
        return mean_of(-np.log(hit), (0.0, float("inf")))
