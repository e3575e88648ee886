"""Scoring rules against scikit-learn."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from calibrant import metrics


@pytest.mark.parametrize("classes", [2, 3, 200])
def test_scores_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(classes)
    probabilities = rng.dirichlet(np.ones(classes), 300)
    labels = rng.integers(classes, size=300)
    names = list(range(classes))
    assert metrics.negative_log_likelihood(probabilities, labels) == pytest.approx(
        log_loss(labels, probabilities, labels=names)
    )
    assert metrics.brier_score(probabilities, labels) == pytest.approx(
        brier_score_loss(labels, probabilities, labels=names, scale_by_half=False)
    )
    correct = probabilities.argmax(1) == labels
    assert metrics.accuracy(correct) == pytest.approx(accuracy_score(labels, probabilities.argmax(1)))


def test_extremes():
    certain = torch.eye(3)
    assert metrics.brier_score(certain, [0, 1, 2]) == 0
    assert metrics.negative_log_likelihood(certain, [0, 1, 2]) == 0
    assert metrics.brier_score(certain, [1, 2, 0]) == 2
    assert metrics.negative_log_likelihood(certain, [0, 1, 0]) == math.inf
    interval = metrics.bootstrap(metrics.negative_log_likelihood, certain, [0, 1, 0], resamples=20)
    assert interval.estimate == math.inf
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


@pytest.mark.parametrize(
    "measure", [metrics.brier_score, metrics.negative_log_likelihood, metrics.classwise_calibration_error]
)
@pytest.mark.parametrize(
    ("probabilities", "labels", "named"),
    [
        ([[0.5, 0.6]], [0], "probabilities must sum to 1"),
        ([[2.0, -1.0]], [0], r"probabilities must lie in \[0, 1\]"),
        ([[0.5, 0.5]], [2], "labels holds 2"),
        ([[0.5, 0.5]], [-1], "labels holds -1"),
        ([[0.5, 0.5]], [0.0], "labels must be integer"),
        ([[0.5, 0.5]], [0, 1], "labels has 2 entries"),
        ([0.5, 0.5], [0, 1], "probabilities must have 2 dimensions"),
        ([[float("nan"), 0.5]], [0], "probabilities holds NaN"),
        (np.zeros((0, 2)), [], "probabilities is empty"),
        ([[1, 0]], [0], "probabilities must be floating"),
    ],
)
def test_bad_input_is_named(measure, probabilities, labels, named):
    with pytest.raises(ValueError, match=named):
        measure(probabilities, labels)


def test_bad_correctness():
    with pytest.raises(ValueError, match="correct is empty"):
        metrics.accuracy([])
    with pytest.raises(ValueError, match="correct must hold only"):
        metrics.accuracy([0.5])


def test_the_interval_of_a_good_score_is_not_cut_off():
    """Of two values in equal numbers the limits lie between these, around their mean."""
    probabilities = np.tile([[0.9, 0.1], [0.8, 0.2]], (50, 1))
    for measure, values in (
        (metrics.negative_log_likelihood, (-math.log(0.9), -math.log(0.8))),
        (metrics.brier_score, (0.02, 0.08)),
    ):
        found = metrics.bootstrap(measure, probabilities, np.zeros(100, int), resamples=300)
        half = 1.96 * (values[1] - values[0]) / 2 / math.sqrt(100)
        assert found.estimate == pytest.approx(sum(values) / 2)
        assert (found.low, found.high) == pytest.approx((found.estimate - half, found.estimate + half), abs=0.3 * half)
