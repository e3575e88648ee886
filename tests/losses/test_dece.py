"""DECE against loops over its definition, and against the hard ECE in the limit of its temperatures."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibrant.losses import DECE, dece


def looped_dece(logits: np.ndarray, labels: np.ndarray, bins: int, t_a: float, t_b: float) -> float:
    """Bin by bin: share x |soft accuracy - soft confidence|, with the smoothing 1e-6 of the original."""
    n, classes = logits.shape
    memberships, accuracies, confidences = [], [], []
    for x, y in zip(logits, labels, strict=True):
        p = np.exp(x - x.max())
        p /= p.sum()
        r = p.max()
        cuts = [k / bins for k in range(bins)]
        scores = np.array([((m + 1) * r - sum(cuts[: m + 1])) / t_b for m in range(bins)])
        o = np.exp(scores - scores.max())
        o = o / o.sum() + 1e-6
        rank = 0.5 + sum(1 / (1 + math.exp(-t_a * (p[k] - p[y]))) for k in range(classes))
        memberships.append(o / (1 + (bins + 1) * 1e-6))
        accuracies.append(max(0.0, 2 - rank))
        confidences.append(r)
    o, a, r = np.array(memberships), np.array(accuracies), np.array(confidences)
    total = 0.0
    for m in range(bins):
        size = o[:, m].sum()
        total += size / n * abs((o[:, m] * a).sum() / size - (o[:, m] * r).sum() / size)
    return float(total)


def hard_ece(r: np.ndarray, c: np.ndarray, bins: int) -> float:
    index = np.ceil(r * bins).clip(1, bins)
    return float(sum(abs((c - r)[index == m].sum()) for m in range(1, bins + 1)) / len(r))


def batch(n: int = 40, classes: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 20), st.sampled_from([(100.0, 0.01), (5.0, 0.3)]))
def test_equals_the_definition(seed: int, bins: int, temperatures: tuple[float, float]) -> None:
    logits, labels = batch(n=9, classes=4, seed=seed)
    t_a, t_b = temperatures
    value = dece(logits, labels, bins, rank_temperature=t_a, bin_temperature=t_b).item()
    assert value == pytest.approx(looped_dece(logits.numpy(), labels.numpy(), bins, t_a, t_b), abs=5e-5)


def test_defaults_are_those_of_the_original() -> None:
    logits, _ = batch()
    labels = (1.2 * logits).softmax(1).multinomial(1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    # Gaps of both signs, as the sum over bins of gaps of one sign is the same with any bins.
    expected = looped_dece(logits.numpy(), labels.numpy(), 15, 100.0, 0.01)
    assert abs(expected - looped_dece(logits.numpy(), labels.numpy(), 16, 100.0, 0.01)) > 1e-3
    for measure in (DECE(), dece):
        assert measure(logits, labels).item() == pytest.approx(expected, abs=5e-5)


def test_cold_temperatures_give_the_hard_error() -> None:
    logits, labels = batch(n=500, seed=3)
    p = torch.softmax(logits, 1)
    r, guess = (x.numpy() for x in p.max(1))
    expected = hard_ece(r, (guess == labels.numpy()).astype(float), 15)
    value = dece(logits, labels, rank_temperature=1e7, bin_temperature=1e-7)
    assert value.item() == pytest.approx(expected, abs=1e-3)


def test_a_tie_with_the_top_counts_one_half() -> None:
    value = dece(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([1]))  # accuracy 0.5, confidence 0.5
    assert value.item() == pytest.approx(0, abs=1e-12)


def test_gradcheck() -> None:
    logits, labels = batch(n=6, seed=5)
    assert torch.autograd.gradcheck(
        lambda x: dece(x, labels, 5, rank_temperature=10.0, bin_temperature=0.1), (logits.requires_grad_(),)
    )


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_the_gradient_is_finite_for_flat_and_saturated_logits(scale: float) -> None:
    logits, labels = batch()
    x = (scale * logits).float().requires_grad_()
    value = dece(x, labels)
    assert 0 <= value.item() <= 1
    assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


def test_bad_settings() -> None:
    logits, labels = batch()
    for bad, message in [
        ({"bins": 0}, "bins must be at least 1"),
        ({"rank_temperature": 0.0}, "rank_temperature must be positive"),
        ({"bin_temperature": -1.0}, "bin_temperature must be positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            DECE(**bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            dece(logits, labels, **bad)  # type: ignore[arg-type]
