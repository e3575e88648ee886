"""What measures are given: tensors, arrays, lists and series of any dtype; probabilities with labels; bad input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibrant import checks, metrics
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.metrics.functional import bin_sums, functional_of
from calibrant.metrics.ordering import cumulated, steps
from calibrant.predictions import Predictions
from calibrant.slots import lookup, names

PAIRED = [
    metrics.expected_calibration_error,
    metrics.maximum_calibration_error,
    metrics.mmce,
    metrics.aurc,
    metrics.augrc,
]


@pytest.fixture(scope="module")
def case() -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (300, 4) and labels (300,)."""
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(4), 300), rng.integers(4, size=300)


@pytest.mark.parametrize("measure", PAIRED)
@pytest.mark.parametrize("form", [np.asarray, torch.as_tensor, lambda values: np.asarray(values).tolist()])
def test_probabilities_with_labels_are_the_confidence_and_whether_it_is_right(
    measure: Callable[..., float], form: Callable[[Any], Any], case: tuple[np.ndarray, np.ndarray]
) -> None:
    probabilities, labels = case
    expected = measure(probabilities.max(1), probabilities.argmax(1) == labels)
    assert measure(form(probabilities), form(labels)) == expected


def test_selective_measures_take_probabilities_with_labels(case: tuple[np.ndarray, np.ndarray]) -> None:
    probabilities, labels = case
    confidence, correct = probabilities.max(1), probabilities.argmax(1) == labels
    for measure in (metrics.selective_accuracy, metrics.selective_calibration_error, metrics.selective):
        assert measure(probabilities, labels, coverage=0.5) == measure(confidence, correct, coverage=0.5)
    diagram = metrics.reliability_diagram(probabilities, labels)
    np.testing.assert_array_equal(diagram.count, metrics.reliability_diagram(confidence, correct).count)
    found = metrics.bootstrap(metrics.expected_calibration_error, probabilities, labels, resamples=10)
    assert found == metrics.bootstrap(metrics.expected_calibration_error, confidence, correct, resamples=10)


@pytest.mark.parametrize(
    ("labels", "named"),
    [([0, 7], "labels holds 7"), ([True, False], "labels must be integer"), ([0.0, 1.0], "labels must be integer")],
)
def test_probabilities_without_labels_are_refused(labels: list[Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"confidence must have 1 dimension.*{named}"):
        metrics.expected_calibration_error([[0.5, 0.5], [0.1, 0.9]], labels)


@pytest.mark.parametrize("measure", PAIRED)
def test_every_form_of_the_same_numbers_gives_the_same(measure: Callable[..., float]) -> None:
    rng = np.random.default_rng(1)
    confidence, correct = rng.random(200), rng.random(200) < 0.5
    expected = measure(confidence, correct)
    assert isinstance(expected, float)
    for form in (np.ndarray.tolist, pd.Series, torch.from_numpy, lambda values: values[::-1][::-1]):
        assert measure(form(confidence), form(correct)) == expected
    frozen = confidence.copy()
    frozen.setflags(write=False)
    assert measure(frozen, correct) == measure(frozen.astype(">f8"), correct) == expected
    assert measure(frozen.astype(np.longdouble), correct) == expected


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int32"])
def test_labels_are_of_any_integer_type(dtype: str, case: tuple[np.ndarray, np.ndarray]) -> None:
    probabilities, labels = case
    given = labels.astype(dtype)
    logits = torch.from_numpy(np.log(probabilities))
    for form in (given, torch.from_numpy(given)):
        for measure in (metrics.brier_score, metrics.negative_log_likelihood, metrics.classwise_calibration_error):
            assert measure(probabilities, form) == measure(probabilities, labels)
        for name in names("regularizer"):
            regularizer = lookup("regularizer", name)()
            assert torch.equal(regularizer(logits, form), regularizer(logits, torch.from_numpy(labels)))
        fitted = [TemperatureScaling().fit(logits, each).temperature_ for each in (form, labels)]
        assert fitted[0] == fitted[1]
    with pytest.raises(ValueError, match="labels holds 4, but with 4 classes"):
        metrics.brier_score(probabilities, np.full(300, 4, dtype))


def test_masked_arrays_are_taken_without_masked_entries() -> None:
    whole = np.ma.masked_array([0.5, 0.7], mask=[False, False])
    assert metrics.expected_calibration_error(whole, [1, 0]) == metrics.expected_calibration_error([0.5, 0.7], [1, 0])
    with pytest.raises(ValueError, match="confidence holds masked entries; leave out the rows"):
        metrics.expected_calibration_error(np.ma.masked_array([0.5, 0.7], mask=[True, False]), [1, 0])


@pytest.mark.parametrize(
    ("confidence", "named"),
    [
        (torch.tensor([0.5, 0.7]).to_sparse(), "confidence is sparse; make it dense first"),
        (torch.empty(2, device="meta"), "confidence is on the meta device"),
        (torch.tensor([0.5, 0.7]).to(torch.float8_e4m3fn), "confidence is of torch.float8_e4m3fn.*to float32 first"),
        (torch.nested.nested_tensor([torch.rand(1)], layout=torch.jagged), "confidence is a nested tensor"),
    ],
)
def test_tensors_without_readable_values_are_refused(confidence: torch.Tensor, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        metrics.expected_calibration_error(confidence, [1, 0])
    with pytest.raises(ValueError, match=named):
        checks.unit_interval("confidence", confidence)


@pytest.mark.parametrize("bins", [0, -1, 2.5, True, 10**9, 2**80])
def test_bins_are_bounded(bins: Any) -> None:
    with pytest.raises(ValueError, match="bins must be a whole number from 1 to 1,000,000"):
        metrics.expected_calibration_error([0.5, 0.7], [0, 1], bins)
    with pytest.raises(ValueError, match="bins must be a whole number from 1 to 1,000,000"):
        metrics.total_variation([0.5, 0.7], [0.1], bins)


@pytest.mark.parametrize("coverage", [0, 1.5, float("nan"), None, "0.5", [0.5]])
def test_a_coverage_is_a_fraction(coverage: Any) -> None:
    with pytest.raises(ValueError, match=r"coverage must lie in \(0, 1\]"):
        metrics.threshold_at_coverage([0.5, 0.7], coverage)


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0"):
        metrics.bootstrap(metrics.accuracy, [1, 0], seed=seed)


def test_total_variation_does_not_exceed_one_by_rounding() -> None:
    for n in range(3, 60):
        inside = np.linspace(0.51, 1.0, n)
        outside = np.linspace(0.01, 0.49, n + 1)
        functional = functional_of(metrics.total_variation, inside, outside, 50)
        weights = np.random.default_rng(n).random((20, n)), np.random.default_rng(n + 1).random((20, n + 1))
        assert (functional.under(*weights) <= 1).all()
        assert metrics.total_variation(inside, outside, 50) <= 1


@pytest.mark.parametrize("rows", [3, 20])
def test_sums_by_bin_and_place_are_those_of_a_loop(rows: int) -> None:
    rng = np.random.default_rng(rows)
    index, counts = rng.integers(6, size=50), rng.integers(3, size=(rows, 50)).astype(float)
    reals = counts * rng.standard_normal(50)
    for weights in (counts, reals):
        expected = np.zeros((rows, 7))
        for point, place in enumerate(index):
            expected[:, place] += weights[:, point]
        np.testing.assert_array_equal(bin_sums(index, weights, 7), expected)
    through = np.cumsum(bin_sums(index, counts, 7), axis=1)
    np.testing.assert_array_equal(cumulated(index, counts, 7), through)
    np.testing.assert_array_equal(steps(through), np.diff(through, axis=1, prepend=0.0))


def test_predictions_hold_arrays_as_well_as_tensors(case: tuple[np.ndarray, np.ndarray]) -> None:
    probabilities, labels = case
    ours = Predictions.from_probabilities(probabilities, labels)
    theirs = Predictions.from_probabilities(torch.from_numpy(probabilities), torch.from_numpy(labels))
    assert isinstance(ours.confidence, np.ndarray)
    np.testing.assert_array_equal(ours.correct, theirs.correct.numpy())
    both = Predictions.concatenate([ours[:100], ours[100:]])
    np.testing.assert_array_equal(both.confidence, theirs.numpy().confidence)
