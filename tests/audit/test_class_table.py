"""The table of classes, against scikit-learn and by hand."""

import math

import numpy as np
import pytest
import torch

from calibrant import metrics
from calibrant.audit.class_table import class_table
from calibrant.metrics.proportion import proportion

RNG = np.random.default_rng(0)
PROBABILITIES = RNG.dirichlet(np.ones(4), 400)
LABELS = np.where(RNG.random(400) < 0.6, PROBABILITIES.argmax(1), RNG.integers(4, size=400))


def test_recall_precision_and_confusions_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    predicted = PROBABILITIES.argmax(1)
    table = class_table(LABELS, probabilities=PROBABILITIES)
    precision, recall, _, support = precision_recall_fscore_support(LABELS, predicted)
    assert [row.recall.estimate for row in table.classes] == pytest.approx(recall.tolist())
    assert [row.precision.estimate for row in table.classes] == pytest.approx(precision.tolist())
    assert [row.count for row in table.classes] == support.tolist()
    matrix = confusion_matrix(LABELS, predicted)
    np.fill_diagonal(matrix, 0)
    assert [pair.count for pair in table.confusions] == sorted(matrix.ravel().tolist(), reverse=True)[:10]
    for pair in table.confusions:
        assert matrix[int(pair.label), int(pair.predicted)] == pair.count
        assert pair.share == pytest.approx(pair.count / support[int(pair.label)])


def test_gap_and_ece_are_of_the_answers_with_a_class() -> None:
    predicted, confidence = PROBABILITIES.argmax(1), PROBABILITIES.max(1)
    table = class_table(LABELS, predicted, confidence)
    for row in table.classes:
        mine = predicted == int(row.name)
        assert row.gap.estimate == pytest.approx(confidence[mine].mean() - (predicted == LABELS)[mine].mean())
        ece = metrics.expected_calibration_error(confidence[mine], (predicted == LABELS)[mine])
        assert row.ece.estimate == pytest.approx(ece)
        assert row.ece.low <= ece <= row.ece.high
        other = metrics.bootstrap(metrics.expected_calibration_error, confidence[mine], (predicted == LABELS)[mine])
        assert (row.ece.low, row.ece.high) == pytest.approx((other.low, other.high), abs=0.03)
    assert table.worst[0].recall.estimate == min(row.recall.estimate for row in table.classes)


def test_wilson_s_interval_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    for successes, count in ((0, 7), (3, 11), (50, 50)):
        expected = binomtest(successes, count).proportion_ci(method="wilson")
        found = proportion(successes, count)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_classes_that_are_never_answered_or_never_true() -> None:
    table = class_table(["a", "a", "b"], ["a", "c", "c"], [0.5, 0.5, 0.5])
    by_name = {row.name: row for row in table.classes}
    assert math.isnan(by_name["b"].precision.estimate)
    assert math.isnan(by_name["c"].recall.estimate)
    assert math.isnan(by_name["a"].ece.low)
    assert table.records()[1]["precision"] is None
    assert table.records()[0]["recall_low"] < table.records()[0]["recall"] == 0.5


def test_tensors_are_taken_and_bad_input_is_one_sentence() -> None:
    table = class_table(torch.from_numpy(LABELS), probabilities=torch.from_numpy(PROBABILITIES))
    assert table == class_table(LABELS, probabilities=PROBABILITIES)
    with pytest.raises(ValueError, match="predicted and confidence are missing"):
        class_table([0, 1])
    with pytest.raises(ValueError, match="text and numbers"):
        class_table(["0"], [0], [0.5])
    with pytest.raises(ValueError, match="one entry per row"):
        class_table([0, 1], [0], [0.5])
