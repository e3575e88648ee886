from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from calibrant.losses import MMCE, FocalLoss, mmce
from calibrant.losses.objective import Objective
from calibrant.posteriors.mean_field import MeanField


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(16, 4, dtype=torch.float64, requires_grad=True), torch.arange(16) % 4


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    rows = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    return -sum(math.log(rows[i, labels[i]]) for i in range(len(labels))) / len(labels)


def test_the_terms_and_their_sum_equal_those_written_out(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    logits, labels = batch
    outliers, kl = torch.randn(6, 4, dtype=torch.float64), torch.tensor(123.0, dtype=torch.float64)
    objective = Objective(1000, beta=0.5, regularizer=MMCE(), calibration_weight=3.0, ocm_weight=0.7)
    terms = objective(logits, labels, kl=kl, outlier_logits=outliers)
    probabilities = torch.softmax(logits, 1)
    confidence, predicted = probabilities.max(1)
    expected = {
        "cross_entropy": cross_entropy(logits.detach(), labels),
        "kl": 123.0,
        "calibration": mmce(confidence, (predicted == labels).double(), 0.4).item(),
        "ocm": -torch.log_softmax(outliers, 1).mean().item(),
    }
    assert set(terms) == {*expected, "loss"}
    for name, value in expected.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-9), name
    total = expected["cross_entropy"] + 0.5 / 1000 * 123 + 3 * expected["calibration"] + 0.7 * expected["ocm"]
    assert terms["loss"].item() == pytest.approx(total, rel=1e-9)


def test_terms_of_weight_zero_are_not_computed(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    def never(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        raise AssertionError("computed")

    terms = Objective(10, regularizer=never)(*batch)
    assert set(terms) == {"cross_entropy", "loss"}


def test_the_regularizer_can_look_at_a_disjoint_part(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    other, other_labels = torch.randn(5, 4, dtype=torch.float64), torch.arange(5) % 4
    objective = Objective(10, regularizer=MMCE(), calibration_weight=1.0)
    terms = objective(*batch, regularizer_logits=other, regularizer_labels=other_labels)
    assert terms["calibration"].item() == pytest.approx(MMCE()(other, other_labels).item())


def test_the_focal_loss_can_replace_the_cross_entropy(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    terms = Objective(10, regularizer=FocalLoss(), replaces_cross_entropy=True)(*batch)
    assert terms["loss"].item() == FocalLoss()(*batch).item()


def test_gradients_flow_to_the_posterior_from_every_term() -> None:
    q = MeanField(nn.Linear(5, 3))
    objective = Objective(100, regularizer=MMCE(), calibration_weight=1.0, ocm_weight=0.5)
    logits = q(torch.randn(12, 5))
    objective(logits[:8], torch.arange(8) % 3, kl=q.kl(), outlier_logits=logits[8:])["loss"].backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in q.parameters())


def test_what_does_not_fit_is_named(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="num_data must be positive"):
        Objective(0)
    with pytest.raises(ValueError, match="beta must be a finite number"):
        Objective(10, beta=-1.0)
    with pytest.raises(ValueError, match="no regularizer"):
        Objective(10, calibration_weight=1.0)
    with pytest.raises(ValueError, match="outlier_logits are missing"):
        Objective(10, ocm_weight=0.5)(*batch)
    with pytest.raises(ValueError, match="go together"):
        Objective(10)(*batch, regularizer_logits=batch[0])
