"""AvUC and soft AvUC against loops that count example by example."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibrant.losses import AvUC, SoftAvUC, avuc, soft_avuc
from calibrant.losses.avuc import entropy


def batch(seed: int, n: int = 15, classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.where(
        torch.rand(n, generator=generator) < 0.5, logits.argmax(1), torch.randint(classes, (n,), generator=generator)
    )
    return logits, labels


def examples(logits: Tensor, labels: Tensor) -> list[tuple[bool, float, float]]:
    """(right, confidence, entropy) of each example, by hand."""
    rows = []
    for x, y in zip(logits.numpy(), labels.tolist(), strict=True):
        p = np.exp(x) / np.exp(x).sum()
        rows.append((int(p.argmax()) == y, float(p.max()), float(-(p * np.log(p)).sum())))
    return rows


def looped_avuc(logits: Tensor, labels: Tensor, threshold: float) -> float:
    """Minus the log of AvU = (n_AC + n_IU) / (n_AC + n_AU + n_IC + n_IU), as the original writes it."""
    n_ac = n_au = n_ic = n_iu = 0.0
    for right, confidence, u in examples(logits, labels):
        if right and u <= threshold:
            n_ac += confidence * (1 - math.tanh(u))
        elif right:
            n_au += confidence * math.tanh(u)
        elif u <= threshold:
            n_ic += (1 - confidence) * (1 - math.tanh(u))
        else:
            n_iu += (1 - confidence) * math.tanh(u)
    return -math.log((n_ac + n_iu) / (n_ac + n_au + n_ic + n_iu))


def looped_soft_avuc(logits: Tensor, labels: Tensor, kappa: float, temperature: float) -> float:
    n_ac = n_au = n_ic = n_iu = 0.0
    for right, _, u in examples(logits, labels):
        v = u / math.log(logits.shape[1])
        t = 1 / (1 + math.exp(-(1 / temperature) * math.log(v * (1 - kappa) / ((1 - v) * kappa))))
        if right:
            n_ac += (1 - t) * (1 - math.tanh(u))
            n_au += t * math.tanh(u)
        else:
            n_ic += (1 - t) * (1 - math.tanh(u))
            n_iu += t * math.tanh(u)
    return math.log(1 + (n_au + n_ic) / max(n_ac + n_iu, 1e-5))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.2, 1.0))
def test_avuc_equals_the_counts(seed: int, threshold: float) -> None:
    logits, labels = batch(seed)
    good = [u <= threshold if right else u > threshold for right, _, u in examples(logits, labels)]
    if any(good):
        value = AvUC(threshold)(logits, labels).item()
        assert value == pytest.approx(looped_avuc(logits, labels, threshold), rel=1e-9, abs=1e-12)


def test_an_entropy_that_equals_the_threshold_is_certain() -> None:
    logits = torch.zeros(2, 2)
    threshold = float(entropy(logits.log_softmax(-1))[0])
    value = avuc(logits, torch.tensor([0, 1]), threshold=threshold)  # n_AC = n_IC; were neither certain, both 0
    assert float(value) == pytest.approx(math.log(2))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_without_a_threshold_it_splits_between_the_groups(seed: int) -> None:
    logits, labels = batch(seed)
    rows = examples(logits, labels)
    groups = [[u for right, _, u in rows if right is side] for side in (True, False)]
    middle = float(np.mean([np.mean(group) for group in groups if group]))
    torch.testing.assert_close(avuc(logits, labels), avuc(logits, labels, middle))


@pytest.mark.parametrize("right", [True, False])
def test_one_group_alone_is_split_at_its_own_mean(right: bool) -> None:
    logits, _ = batch(4)
    labels = logits.argmax(1) if right else (logits.argmax(1) + 1) % 4
    mean = float(np.mean([u for _, _, u in examples(logits, labels)]))
    assert avuc(logits, labels).item() == pytest.approx(looped_avuc(logits, labels, mean), rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.05, 0.95), st.floats(0.05, 3.0))
@example(seed=1319, kappa=0.0546875, temperature=0.0625)  # a denominator of 7e-6
def test_soft_avuc_equals_the_soft_counts(seed: int, kappa: float, temperature: float) -> None:
    logits, labels = batch(seed)
    value = SoftAvUC(kappa, temperature=temperature)(logits, labels).item()
    assert value == pytest.approx(looped_soft_avuc(logits, labels, kappa, temperature), rel=1e-7)


def test_soft_avuc_with_defaults_splits_by_the_normalized_entropy() -> None:
    logits, labels = batch(1)
    for measure in (soft_avuc, SoftAvUC()):
        assert measure(logits, labels).item() == pytest.approx(looped_soft_avuc(logits, labels, 0.5, 1.0), rel=1e-9)


@pytest.mark.parametrize("module", [AvUC(0.6), AvUC(), SoftAvUC(), SoftAvUC(0.3, temperature=0.2)])
def test_gradcheck(module: torch.nn.Module) -> None:
    logits, labels = batch(2)
    if isinstance(module, AvUC) and module.threshold is None:
        with torch.no_grad():
            rows = examples(logits, labels)
        sides = [np.mean([u for right, _, u in rows if right is side]) for side in (True, False)]
        module_at_middle = AvUC(float(np.mean(sides)))
        x = logits.clone().requires_grad_()
        torch.testing.assert_close(
            torch.autograd.grad(module(x, labels), x), torch.autograd.grad(module_at_middle(x, labels), x)
        )
    else:
        assert torch.autograd.gradcheck(lambda x: module(x, labels), (logits.requires_grad_(),))


@pytest.mark.parametrize("module", [AvUC(), AvUC(0.5), SoftAvUC(), SoftAvUC(temperature=0.01)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("right", [True, False])
def test_value_and_gradient_are_finite_at_the_extremes(module: torch.nn.Module, scale: float, right: bool) -> None:
    logits, _ = batch(3)
    x = (scale * logits).float().requires_grad_()
    labels = x.argmax(1) if right else (x.argmax(1) + 1) % 4
    for rows in (slice(None), slice(1)):
        value = module(x[rows], labels[rows])
        assert math.isfinite(value.item())
        assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


def test_certain_where_right_is_better_than_certain_where_wrong() -> None:
    sure, unsure = [5.0, 0.0], [0.1, 0.0]
    logits = torch.tensor([sure, unsure])
    for measure in (avuc, soft_avuc):
        assert measure(logits, torch.tensor([0, 1])) < measure(logits, torch.tensor([1, 0]))


def test_one_logit_is_read_as_two_classes() -> None:
    one, labels = torch.tensor([[0.3], [-2.0], [1.5]]), torch.tensor([1, 1, 0])
    two = torch.cat([torch.zeros(3, 1), one], 1)
    torch.testing.assert_close(soft_avuc(one, labels), soft_avuc(two, labels))


def test_bad_settings() -> None:
    logits, labels = batch(0)
    for threshold in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
            SoftAvUC(threshold)
        with pytest.raises(ValueError, match="threshold must lie between 0 and 1"):
            soft_avuc(logits, labels, threshold)
    with pytest.raises(ValueError, match="temperature must be positive"):
        SoftAvUC(temperature=0)
    with pytest.raises(ValueError, match="threshold must be a number"):
        AvUC(math.nan)
