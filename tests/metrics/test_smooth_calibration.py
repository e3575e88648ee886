"""The smooth calibration error against `relplot`, its authors' package, and against the sum that defines it."""

import numpy as np
import pytest

from calibrant import metrics
from calibrant.metrics.smooth_calibration import _smoothed, _spread


def draw(n: int, gap: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(5, 1.3, n)
    return confidence, (rng.random(n) < np.clip(confidence - gap, 0, 1)).astype(float)


@pytest.mark.parametrize("n", [50, 2000])
@pytest.mark.parametrize("gap", [0.0, 0.03, 0.1, 0.3])
def test_it_agrees_with_relplot(n: int, gap: float) -> None:
    relplot = pytest.importorskip("relplot")
    confidence, correct = draw(n, gap)
    assert metrics.smooth_calibration_error(confidence, correct) == pytest.approx(
        relplot.smECE(confidence, correct), abs=1e-3
    )


@pytest.mark.parametrize("bandwidth", [0.02, 0.1, 0.5])
def test_smoothing_is_the_sum_over_reflected_gaussians(bandwidth: float) -> None:
    confidence, correct = draw(60, 0.2)
    cells = (np.arange(1024) + 0.5) / 1024
    images = np.concatenate([sign * confidence + 2 * turn for turn in range(-3, 4) for sign in (1, -1)])
    kernel = np.exp(-(((cells[:, None] - images) / bandwidth) ** 2) / 2) / np.sqrt(2 * np.pi) / bandwidth
    expected = kernel @ np.tile(correct - confidence, 14) / 60 / 1024
    found = _smoothed(_spread(confidence, correct - confidence)(np.ones((1, 60))), np.array([bandwidth]))[0]
    np.testing.assert_allclose(found, expected, atol=2e-3 * np.abs(expected).max())


def test_it_is_the_bandwidth_that_equals_it() -> None:
    confidence, correct = draw(500, 0.1)
    value = metrics.smooth_calibration_error(confidence, correct)
    smoothed = _smoothed(_spread(confidence, correct - confidence)(np.ones((1, 500))), np.array([value]))
    assert np.abs(smoothed).sum() == pytest.approx(value, abs=3e-4)


def test_a_gap_of_one_sign_is_the_whole_gap() -> None:
    assert metrics.smooth_calibration_error([0.3, 0.6, 0.9], [1, 1, 1]) == pytest.approx(0.4)
    assert metrics.smooth_calibration_error([0.0, 1.0], [0, 1]) == pytest.approx(0, abs=1e-3)


def test_counts_stand_for_repeated_points() -> None:
    confidence, correct = draw(40, 0.1)
    twice = metrics.smooth_calibration_error(np.tile(confidence, 2), np.tile(correct, 2))
    assert metrics.smooth_calibration_error(confidence, correct) == pytest.approx(twice)
