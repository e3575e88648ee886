"""Calibration measures against literal transcriptions, torchmetrics and n x n sums."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torchmetrics.functional.classification import binary_calibration_error

from calibrant import metrics
from calibrant.metrics.functional import functional_of

unit = st.floats(0, 1, width=32)
# Few distinct values, edges of bins among them, so that ties and points on an edge are common.
level = st.one_of(unit, st.sampled_from([0.0, 0.2, 1 / 3, 0.4, 0.6, 2 / 3, 0.8, 1.0]))
points = st.lists(st.tuples(level, st.booleans()), min_size=1, max_size=60).map(lambda rows: list(zip(*rows)))


def paper_ece(confidence, correct, bins):
    """The formula as the paper prints it, bin by bin."""
    total = 0.0
    for m in range(1, bins + 1):
        low, high = (m - 1) / bins, m / bins
        members = [i for i, r in enumerate(confidence) if low < r <= high or (m == 1 and r == 0)]
        if members:
            acc = sum(correct[i] for i in members) / len(members)
            conf = sum(confidence[i] for i in members) / len(members)
            total += len(members) / len(confidence) * abs(acc - conf)
    return total


@given(points, st.integers(1, 20))
@settings(deadline=None, max_examples=150)
def test_ece_is_the_paper_s_formula(data, bins):
    confidence, correct = data
    assert metrics.expected_calibration_error(confidence, correct, bins) == pytest.approx(
        paper_ece(confidence, correct, bins), abs=1e-12
    )


@given(points, st.integers(1, 20), st.sampled_from(["width", "mass"]), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=100)
def test_errors_are_fractions_and_do_not_depend_on_the_order(data, bins, binning, random):
    confidence, correct = data
    ece = metrics.expected_calibration_error(confidence, correct, bins, binning=binning)
    mce = metrics.maximum_calibration_error(confidence, correct, bins, binning=binning)
    assert 0 <= ece <= mce + 1e-12 <= 1 + 2e-12
    order = random.sample(range(len(confidence)), len(confidence))
    shuffled = [confidence[i] for i in order], [correct[i] for i in order]
    assert metrics.expected_calibration_error(*shuffled, bins, binning=binning) == pytest.approx(ece, abs=1e-12)
    assert metrics.maximum_calibration_error(*shuffled, bins, binning=binning) == pytest.approx(mce, abs=1e-12)


@pytest.mark.parametrize(("norm", "ours"), [("l1", "expected"), ("max", "maximum")])
def test_agrees_with_torchmetrics_away_from_the_edges(norm, ours):
    generator = torch.Generator().manual_seed(0)
    confidence = torch.rand(5000, generator=generator)
    correct = torch.rand(5000, generator=generator) < confidence.square()
    theirs = binary_calibration_error(confidence, correct.long(), n_bins=15, norm=norm)
    assert getattr(metrics, f"{ours}_calibration_error")(confidence, correct) == pytest.approx(float(theirs), abs=1e-5)


def test_one_bin_is_the_gap_of_the_means():
    confidence, correct = [0.2, 0.9, 1.0, 0.0], [0, 1, 0, 0]
    for binning in ("width", "mass"):
        assert metrics.expected_calibration_error(confidence, correct, 1, binning=binning) == pytest.approx(0.275)


def test_one_point():
    for measure in (metrics.expected_calibration_error, metrics.maximum_calibration_error, metrics.mmce):
        assert measure([0.25], [1]) == pytest.approx(0.75)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_points_on_an_edge_belong_to_the_bin_below_in_every_precision(dtype):
    edges = (torch.arange(16, dtype=torch.float64) / 15).to(dtype)
    count = metrics.reliability_diagram(edges, torch.ones(16)).count
    assert count.tolist() == [2] + [1] * 14


def test_reliability_diagram_loses_nothing_and_leaves_empty_bins_undefined():
    diagram = metrics.reliability_diagram([0.0, 1.0, 0.5, 0.5], [0, 1, 1, 0], bins=4)
    assert diagram.count.tolist() == [1, 2, 0, 1]
    np.testing.assert_allclose(diagram.accuracy, [0, 0.5, np.nan, 1])
    np.testing.assert_allclose(diagram.confidence, [0, 0.5, np.nan, 1])
    np.testing.assert_allclose(diagram.edges, [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_array_equal(metrics.bin_accuracy([0.0, 1.0, 0.5, 0.5], [0, 1, 1, 0], bins=4), diagram.accuracy)


@given(points, st.integers(1, 9), st.sampled_from(["width", "mass"]))
@settings(deadline=None, max_examples=60)
def test_the_diagram_carries_the_ece(data, bins, binning):
    diagram = metrics.reliability_diagram(*data, bins, binning=binning)
    assert diagram.count.sum() == len(data[0])
    expected = metrics.expected_calibration_error(*data, bins, binning=binning)
    assert diagram.calibration_error == pytest.approx(expected, abs=1e-12)
    for m in np.flatnonzero(diagram.count):
        assert diagram.edges[m] - 1e-7 <= diagram.confidence[m] <= diagram.edges[m + 1] + 1e-7


def test_equal_mass_bins_hold_equal_shares_and_keep_ties_together():
    rng = np.random.default_rng(0)
    confidence = rng.beta(8, 1, 150)
    diagram = metrics.reliability_diagram(confidence, np.ones(150), bins=15, binning="mass")
    assert diagram.count.tolist() == [10] * 15
    chunks = np.sort(confidence).reshape(15, 10)
    np.testing.assert_allclose(diagram.confidence, chunks.mean(1))
    np.testing.assert_allclose(diagram.edges[1:-1], chunks[:-1, -1])
    tied = metrics.reliability_diagram([0.5] * 7 + [0.9], [1] * 8, bins=4, binning="mass")
    assert sorted(tied.count.tolist()) == [0, 0, 1, 7]


@pytest.mark.parametrize("classes", [2, 5, 100])
def test_classwise_error_is_the_mean_over_classes(classes):
    rng = np.random.default_rng(classes)
    probabilities = rng.dirichlet(np.ones(classes) / 2, 200)
    labels = rng.integers(classes, size=200)
    expected = np.mean([paper_ece(probabilities[:, c], labels == c, 15) for c in range(classes)])
    assert metrics.classwise_calibration_error(probabilities, labels) == pytest.approx(expected, abs=1e-12)


def kernel_error(confidence, correct, selection, width):
    """The printed double sum."""
    r, c, g = (np.asarray(x, np.float64) for x in (confidence, correct, selection))
    kernel = np.exp(-np.abs(r[:, None] - r) / width)
    residual = (c - r) * g
    return math.sqrt(max(residual @ kernel @ residual, 0) / g.sum() ** 2)


@given(points, st.sampled_from([0.005, 0.2, 0.4]), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_mmce_and_its_selective_form_are_the_double_sums(data, width, random):
    confidence, correct = np.asarray(data[0], np.float64), data[1]
    soft = [random.uniform(0.01, 1) for _ in correct]
    ones = [1] * len(correct)
    expected = kernel_error(confidence, correct, ones, width)
    assert metrics.mmce(confidence, correct, width) == pytest.approx(expected, abs=1e-7)
    assert metrics.selective_mmce(confidence, correct, ones, width) == pytest.approx(expected, abs=1e-7)
    expected = kernel_error(confidence, correct, soft, width)
    assert metrics.selective_mmce(confidence, correct, soft, width) == pytest.approx(expected, abs=1e-7)


def test_selective_mmce_sees_only_what_is_accepted():
    confidence, correct, kept = [0.9, 0.7, 0.2], [1, 0, 0], [True, True, False]
    assert metrics.selective_mmce(confidence, correct, kept) == pytest.approx(
        metrics.mmce(confidence[:2], correct[:2], width=0.2)
    )


def test_calibrated_samples_tend_to_zero_and_miscalibration_grows():
    rng = np.random.default_rng(0)
    for measure in (metrics.mmce, metrics.expected_calibration_error):
        errors = []
        for n in (100, 10_000):
            confidence = rng.uniform(0.5, 1, n)
            errors.append(np.mean([measure(confidence, rng.random(n) < confidence) for _ in range(20)]))
        assert errors[1] < 0.25 * errors[0]
        uniform = rng.random(5000)
        confidence = rng.uniform(0.5, 1, 5000)
        grown = [measure(confidence, uniform < confidence - gap) for gap in (0, 0.1, 0.2, 0.3)]
        assert grown == sorted(grown)
        assert grown[3] > 5 * grown[0]


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1)))
@settings(deadline=None, max_examples=30)
def test_tensors_arrays_and_lists_give_the_same(confidence):
    correct = confidence > 0.5
    expected = metrics.expected_calibration_error(confidence, correct)
    assert metrics.expected_calibration_error(torch.from_numpy(confidence), torch.from_numpy(correct)) == expected
    assert metrics.expected_calibration_error(confidence.tolist(), correct.tolist()) == expected


def test_gradients_are_not_needed():
    confidence = torch.tensor([0.5, 0.7], requires_grad=True)
    assert isinstance(metrics.expected_calibration_error(confidence, [1, 0]), float)
    assert isinstance(metrics.mmce(confidence, [1, 0]), float)


PAIRED = [
    metrics.expected_calibration_error,
    metrics.maximum_calibration_error,
    metrics.reliability_diagram,
    metrics.bin_accuracy,
    metrics.mmce,
]


@pytest.mark.parametrize("measure", PAIRED)
@pytest.mark.parametrize(
    ("confidence", "correct", "named"),
    [
        ([0.5, 0.6], [1], "correct has 1 entries, but confidence has 2"),
        ([], [], "confidence"),
        ([0.5, float("nan")], [1, 0], "confidence holds NaN"),
        ([0.5, 1.2], [1, 0], r"confidence must lie in \[0, 1\]"),
        ([0, 1], [1, 0], "confidence must be floating point"),
        ([[0.5, 0.6]], [1, 0], "confidence must have 1 dimension"),
        ([0.5, 0.6], [1, 2], "correct must hold only 0"),
        ([0.5, 0.6], ["a", "b"], "correct must hold numbers"),
    ],
)
def test_bad_input_is_named(measure, confidence, correct, named):
    with pytest.raises(ValueError, match=named):
        measure(confidence, correct)


@pytest.mark.parametrize("bins", [0, -1, 1.5, True])
def test_bad_bins(bins):
    for measure in (metrics.expected_calibration_error, metrics.reliability_diagram):
        with pytest.raises(ValueError, match="bins"):
            measure([0.5], [1], bins)


def test_bad_options():
    with pytest.raises(ValueError, match="binning"):
        metrics.expected_calibration_error([0.5], [1], binning="equal")
    with pytest.raises(ValueError, match="width"):
        metrics.mmce([0.5], [1], width=0.0)
    with pytest.raises(ValueError, match="selection accepts nothing"):
        metrics.selective_mmce([0.5], [1], [0.0])
    with pytest.raises(ValueError, match="selection has 2 entries"):
        metrics.selective_mmce([0.5], [1], [0.0, 1.0])


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_points_that_all_count_nothing_have_no_error_and_do_not_disturb_the_others(binning):
    confidence, correct = [0.3, 0.9, 0.8, 0.9], [0, 1, 1, 0]
    functional = functional_of(metrics.expected_calibration_error, confidence, correct, 4, binning=binning)
    found = functional.under(np.array([[1.0, 1, 1, 1], [0, 0, 0, 0], [0, 2, 0, 2]]))
    assert found[0] == metrics.expected_calibration_error(confidence, correct, 4, binning=binning)
    assert math.isnan(found[1])
    assert found[2] == pytest.approx(0.4)


def test_with_one_class_only_the_classwise_error_is_zero():
    assert metrics.classwise_calibration_error(np.ones((3, 1)), [0, 0, 0]) == 0
