"""The range guard's cost, on validation data and on new data."""

import json
import math

import pytest
import torch
from safetensors.torch import load, save

from calibrant.detectors import RangeGuard


@pytest.mark.parametrize("q", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [1, 2, 19, 20, 99, 100, 1000])
@pytest.mark.parametrize("columns", [1, 3])
def test_the_cost_on_validation_data_is_at_most_one_minus_q(q, count, columns):
    scores = torch.randn(count, columns, generator=torch.Generator().manual_seed(count)).round(decimals=1)  # with ties
    rejected = int((~RangeGuard(q=q).fit(scores).inside(scores)).sum())
    assert rejected <= (1 - q) * count + 1e-9


def test_the_cost_on_new_data_is_exact():
    """P(outside) = 1 - k / (N + 1) with k = ceil(q (N + 1)), averaged over validation sets of N."""
    generator, q, count = torch.Generator().manual_seed(0), 0.9, 24
    expected = 1 - math.ceil(q * (count + 1)) / (count + 1)
    assert expected <= 1 - q
    draws = torch.rand(4000, count, generator=generator, dtype=torch.float64)
    limits = torch.stack([RangeGuard(q=q).fit(row).limits[0] for row in draws])
    costs = 1 - limits  # of a uniform score
    assert abs(float(costs.mean()) - expected) < 4 * float(costs.std()) / math.sqrt(len(costs))


def test_too_few_validation_data_reject_nothing():
    guard = RangeGuard(q=0.99).fit(torch.arange(98.0))
    assert guard.limits.tolist() == [math.inf]
    assert guard.inside(torch.tensor([1e9, math.nan])).tolist() == [True, False]


def test_a_guard_is_its_config_and_its_tensors():
    guard = RangeGuard(q=0.9).fit(torch.randn(50, 2))
    rebuilt = RangeGuard.from_state(json.loads(json.dumps(guard.config())), load(save(guard.state_dict())))
    queries = torch.randn(30, 2)
    assert torch.equal(rebuilt.inside(queries), guard.inside(queries))


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="q must lie in"):
        RangeGuard(q=1.0)
    with pytest.raises(ValueError, match="before fit"):
        RangeGuard().inside(torch.zeros(3))
    with pytest.raises(ValueError, match="scores holds NaN"):
        RangeGuard().fit(torch.tensor([math.nan]))
    with pytest.raises(ValueError, match="scores have 2 columns, but the guard was fitted to 1"):
        RangeGuard().fit(torch.zeros(3)).inside(torch.zeros(3, 2))
