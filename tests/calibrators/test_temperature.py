"""Temperature scaling: the optimum, its invariances, known temperatures."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch.nn.functional import cross_entropy, nll_loss

from calibrant.calibrators.temperature import TemperatureScaling


def _synthetic(temperature, n=20_000, classes=5, seed=0):
    """Labels drawn from softmax(z / temperature): then `temperature` is the right one."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = (logits / temperature).softmax(1).multinomial(1, generator=generator).squeeze(1)
    return logits, labels


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_recovers_a_known_temperature(temperature):
    scaling = TemperatureScaling().fit(*_synthetic(temperature))
    assert scaling.temperature_ == pytest.approx(temperature, rel=0.05)


@given(st.integers(1, 30), st.integers(2, 6), st.floats(0.01, 30), st.integers(0, 1000))
@settings(deadline=None, max_examples=80)
def test_the_optimum_is_that_of_a_general_minimizer_and_never_worse_than_no_scaling(n, classes, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=generator)

    def loss(log_scale):
        return float(cross_entropy(logits * np.exp(log_scale), labels))

    ours = float(cross_entropy(TemperatureScaling().fit(logits, labels).transform(logits), labels))
    best = minimize_scalar(loss, bounds=(np.log(0.01), np.log(100)), method="bounded", options={"xatol": 1e-9}).fun
    assert ours <= loss(0.0) + 1e-12
    assert ours <= best + 1e-7


@pytest.mark.parametrize("members", [1, 4])
def test_the_predicted_class_never_changes(members):
    logits = torch.stack([_synthetic(3.0, 500, seed=k)[0] for k in range(members)])
    labels = _synthetic(3.0, 500)[1]
    scaling = TemperatureScaling().fit(logits, labels)
    before = logits.softmax(-1).mean(0)
    after = scaling.probabilities(logits)
    assert torch.equal(before.argmax(1), after.argmax(1))
    torch.testing.assert_close(after.sum(1), torch.ones(500, dtype=torch.float64))
    assert nll_loss(after.log(), labels) <= nll_loss(before.log(), labels)


def test_members_are_averaged_first():
    logits, labels = _synthetic(2.0, 2000)
    same = TemperatureScaling().fit(logits[None].expand(3, -1, -1), labels)
    alone = TemperatureScaling().fit(logits, labels)
    assert same.temperature_ == pytest.approx(alone.temperature_)
    torch.testing.assert_close(same.probabilities(logits[None]), alone.probabilities(logits))


def test_temperatures_stay_bounded_where_the_labels_do_not_decide():
    logits = 2 * torch.eye(3)
    assert TemperatureScaling().fit(logits, [0, 1, 2]).temperature_ == pytest.approx(0.01)
    assert TemperatureScaling().fit(logits, [1, 2, 0]).temperature_ == pytest.approx(100)
    flat = TemperatureScaling().fit(torch.zeros(3, 2), [0, 1, 1])
    assert 0.01 <= flat.temperature_ <= 100


def test_dtype_is_kept():
    logits, labels = _synthetic(2.0, 100)
    scaling = TemperatureScaling().fit(logits.float(), labels)
    assert scaling.transform(logits.float()).dtype == torch.float32
    assert scaling.transform(logits).dtype == torch.float64


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="labels holds 5"):
        TemperatureScaling().fit(torch.zeros(2, 3), [0, 5])
    with pytest.raises(ValueError, match="labels has 1 entries"):
        TemperatureScaling().fit(torch.zeros(2, 3), [0])
    with pytest.raises(ValueError, match="logits holds NaN"):
        TemperatureScaling().fit(torch.full((2, 3), float("nan")), [0, 1])
    with pytest.raises(ValueError, match="logits must have shape"):
        TemperatureScaling().fit(torch.zeros(3), [0, 1, 2])
    with pytest.raises(ValueError, match="not fitted"):
        TemperatureScaling().transform(torch.zeros(2, 3))
