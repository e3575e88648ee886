"""Infinite logits and tiny temperatures: a number or a sentence, never a silent NaN."""

from __future__ import annotations

import math

import pytest
import torch

from calibrant.losses.confidence import confidence_minimization
from calibrant.losses.dece import dece
from calibrant.losses.focal import focal
from calibrant.losses.soft_avuc import soft_avuc

LABELS = torch.tensor([0, 1])


@pytest.mark.parametrize("loss", [focal, dece, soft_avuc])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_infinite_logits_are_refused_as_diverged(loss, bad):
    with pytest.raises(ValueError, match="NaN or infinity"):
        loss(torch.tensor([[bad, 0.0], [0.0, 1.0]]), LABELS)
    with pytest.raises(ValueError, match="NaN or infinity"):
        confidence_minimization(torch.tensor([[bad, 0.0]]))


@pytest.mark.parametrize("loss", [focal, dece, soft_avuc])
def test_a_class_that_is_ruled_out_gives_no_nan(loss):
    logits = torch.tensor([[1.0, 0.0, -math.inf], [0.0, 1.0, -math.inf]])
    assert math.isfinite(loss(logits, LABELS))


@pytest.mark.parametrize("name", ["bin_temperature", "rank_temperature"])
def test_a_temperature_that_underflows_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1e-30"):
        dece(torch.eye(2), LABELS, **{name: 1e-320})
    with pytest.raises(ValueError, match="temperature must be at least 1e-30"):
        soft_avuc(torch.zeros(2, 2), LABELS, temperature=1e-320)
