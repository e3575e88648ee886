"""The focal loss against loops, the cross-entropy at gamma 0, and its sample-dependent exponent."""

import math

import pytest
import torch
import torch.nn.functional as F

from calibrant.losses import FocalLoss, focal


def looped_focal(logits: torch.Tensor, labels: torch.Tensor, gamma: float, sample_dependent: bool) -> float:
    total = 0.0
    for x, y in zip(logits.tolist(), labels.tolist(), strict=True):
        p = math.exp(x[y]) / sum(math.exp(v) for v in x)
        exponent = gamma
        if sample_dependent and p < 0.2:
            exponent = 5
        elif sample_dependent and p < 0.5:
            exponent = 3
        total -= (1 - p) ** exponent * math.log(p)
    return total / len(logits)


def batch(n: int = 50) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return logits, torch.randint(4, (n,), generator=generator)


@pytest.mark.parametrize("sample_dependent", [False, True])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 3.0])
def test_equals_the_definition(gamma: float, sample_dependent: bool) -> None:
    logits, labels = batch()
    value = FocalLoss(gamma, sample_dependent=sample_dependent)(logits, labels)
    assert value.item() == pytest.approx(looped_focal(logits, labels, gamma, sample_dependent), rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda x: focal(x, labels, gamma, sample_dependent=sample_dependent), (logits.requires_grad_(),)
    )


def test_the_exponent_is_3_by_default_and_the_same_for_all() -> None:
    logits, labels = torch.zeros(2, 8), torch.tensor([0, 5])  # p = 1/8, where a dependent exponent would be 5
    for measure in (focal, FocalLoss()):
        assert measure(logits, labels).item() == pytest.approx((7 / 8) ** 3 * math.log(8), rel=1e-6)


def test_gamma_zero_is_the_cross_entropy() -> None:
    logits, labels = batch()
    torch.testing.assert_close(focal(logits, labels, 0.0), F.cross_entropy(logits, labels))


@pytest.mark.parametrize(("p", "exponent"), [(0.19, 5), (0.2, 3), (0.49, 3), (0.5, 1), (0.9, 1)])
def test_the_exponent_steps_where_published(p: float, exponent: int) -> None:
    logits = torch.tensor([[math.log(p), math.log(1 - p)]], dtype=torch.float64) + 1e-12 * torch.tensor([[1.0, 0.0]])
    value = focal(logits, torch.tensor([0]), 1.0, sample_dependent=True)
    assert value.item() == pytest.approx(-((1 - p) ** exponent) * math.log(p), rel=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("logit", [0.0, 30.0, 1e4, -1e4])
def test_the_gradient_is_finite_at_certainty(gamma: float, logit: float) -> None:
    logits = torch.tensor([[logit, 0.0]], requires_grad=True)
    value = focal(logits, torch.tensor([0]), gamma)
    assert math.isfinite(value.item())
    assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


@pytest.mark.parametrize("gamma", [-1.0, math.nan, math.inf])
def test_bad_settings(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma must be 0 or above"):
        FocalLoss(gamma)
    with pytest.raises(ValueError, match="gamma must be 0 or above"):
        focal(*batch(), gamma)
