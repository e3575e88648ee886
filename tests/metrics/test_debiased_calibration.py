"""The debiased squared calibration error: against its formula point by point, and its bias by simulation."""

import numpy as np
import pytest

from calibrant import metrics


def by_hand(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    order = np.argsort(confidence, kind="stable")
    total = 0.0
    for part in np.array_split(order, bins):
        residual = correct[part] - confidence[part]
        total += len(part) / len(order) * (residual.mean() ** 2 - residual.var(ddof=1) / len(part))
    return float(np.sign(total) * np.sqrt(abs(total)))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_plug_in_less_the_variance_within_bins(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.random(120)
    correct = (rng.random(120) < confidence - 0.1).astype(float)
    found = metrics.debiased_calibration_error(confidence, correct, bins=8)
    assert found == pytest.approx(by_hand(confidence, correct, 8))


def test_with_one_confidence_per_bin_it_is_the_estimator_of_the_paper() -> None:
    """Kumar et al. subtract mean (1 - mean) / (n - 1) of the labels in each bin."""
    rng = np.random.default_rng(0)
    levels = np.repeat([0.2, 0.5, 0.9], 30)
    correct = (rng.random(90) < levels + 0.1).astype(float)
    mean = correct.reshape(3, 30).mean(1)
    square = ((mean - [0.2, 0.5, 0.9]) ** 2 - mean * (1 - mean) / 29).mean()
    expected = np.sign(square) * np.sqrt(abs(square))
    assert metrics.debiased_calibration_error(levels, correct, bins=3) == pytest.approx(expected)


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_its_square_is_unbiased_where_the_plug_in_is_not(gap: float) -> None:
    rng = np.random.default_rng(1)
    squares, plug_in = [], []
    for _ in range(300):
        confidence = rng.uniform(0.2, 0.9, 100)
        correct = rng.random(100) < confidence - gap
        root = metrics.debiased_calibration_error(confidence, correct, bins=10)
        squares.append(np.sign(root) * root**2)
        diagram = metrics.reliability_diagram(confidence, correct, 10, binning="mass")
        plug_in.append(np.average(diagram.gap**2, weights=diagram.count))
    error = np.std(squares) / np.sqrt(300)
    assert np.mean(squares) == pytest.approx(gap**2, abs=3 * error)
    assert np.mean(plug_in) > gap**2 + 10 * error


def test_bins_with_a_single_point_are_left_out() -> None:
    assert metrics.debiased_calibration_error([0.1, 0.9], [1, 0], bins=2) == 0
