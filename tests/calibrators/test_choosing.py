"""The choice among calibrators by hand-computed losses; the search for a scale and the derivatives it is given."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from calibrant.calibrators import TemperatureScaling, fits, temperature
from calibrant.calibrators.choosing import log_loss_rows, simplest_best
from calibrant.calibrators.fits import best_scale, fit_temperature, softmax


def test_the_log_loss_is_that_of_the_own_class_and_finite() -> None:
    p = np.array([[0.25, 0.75], [0.25, 0.75], [1.0, 0.0]])
    found = log_loss_rows(p, np.array([0, 1, 1]))
    np.testing.assert_allclose(found, [math.log(4), math.log(4 / 3), 52 * math.log(2)])  # the rounding is 2 ** -52


def test_probabilities_of_the_largest_logits_are_finite() -> None:
    found = softmax(np.array([[1000.0, 0.0], [1000.0, 1000.0], [-1000.0, -1000.0]]))
    np.testing.assert_allclose(found, [[1, 0], [0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(("other", "best"), [([1.0] * 4, "none"), ([0.999] * 4, "other")])
def test_a_gain_of_one_standard_error_is_not_enough(other: list[float], best: str) -> None:
    # Gains of 3, -1, 3 and -1: their mean is 1, their deviation 2, the standard error 2 / sqrt(4) = 1.
    assert simplest_best({"none": np.array([4.0, 0.0, 4.0, 0.0]), "other": np.array(other)}) == best


def test_of_a_parabola_newton_finds_the_least_place_in_one_step() -> None:
    tried = []

    def derivatives(scale: float) -> tuple[float, float]:
        tried.append(scale)
        return 0.25 * (scale - 3), 0.25

    assert best_scale(derivatives) == 3
    assert tried == [1, 3]


@pytest.mark.parametrize("scale", [0.3, 1.7])
def test_slope_and_curvature_are_those_of_the_log_loss(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    z, y = torch.randn(20, 4, generator=generator, dtype=torch.float64), torch.arange(20) % 4
    given = []
    for module in (fits, temperature):
        monkeypatch.setattr(module, "best_scale", lambda derivatives, **_: given.append(derivatives) or 1.0)
    fit_temperature(z.numpy(), y.numpy())
    TemperatureScaling().fit_logits(z, y)
    at = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(cross_entropy(at * z, y), at, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, at)
    assert len(given) == 2
    for derivatives in given:
        assert derivatives(scale) == pytest.approx((slope.item(), curvature.item()), rel=1e-9)
