"""The share of outliers in an unlabeled stream."""

import math

import numpy as np
import pytest
import torch

from calibrant.selective import estimate_share


def stream(share, size, seed=0, shift=2.0):
    """Exact ratios of N(shift, 1) to N(0, 1) in a stream with a share of the former."""
    rng = np.random.default_rng(seed)
    score = rng.normal(0, 1, size) + shift * (rng.random(size) < share)
    return np.exp(shift * score - shift**2 / 2)


def em(ratio, steps=20_000):
    pi = 0.5
    for _ in range(steps):
        pi = float(np.mean(pi * ratio / ((1 - pi) + pi * ratio)))
    return pi


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_it_is_the_fixed_point_of_em(share):
    ratio = stream(share, 500)
    assert estimate_share(ratio).estimate == pytest.approx(em(ratio), abs=1e-6)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_the_true_share_is_recovered_and_covered(share):
    found = [estimate_share(stream(share, 1500, seed)) for seed in range(200)]
    covered = np.mean([item.low <= share <= item.high for item in found])
    spread = np.std([item.estimate for item in found])
    assert abs(np.mean([item.estimate for item in found]) - share) < 4 * spread / math.sqrt(200)
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / 200) <= covered
    assert all(item.identified for item in found)


def test_the_interval_is_where_the_likelihood_falls_by_half_the_chi_square_quantile():
    ratio = stream(0.3, 400)
    share = estimate_share(ratio, level=0.9)

    def likelihood(pi):
        return float(np.log((1 - pi) + pi * ratio).sum())

    for limit in (share.low, share.high):
        assert likelihood(share.estimate) - likelihood(limit) == pytest.approx(2.705543454 / 2, abs=1e-6)


def test_a_stream_without_outliers_has_share_zero_at_its_lower_end():
    found = [estimate_share(stream(0.0, 1000, seed)) for seed in range(20)]
    assert min(item.estimate for item in found) == 0.0
    assert sum(item.low == 0.0 for item in found) >= 16


@pytest.mark.parametrize("ratio", [np.ones(500), np.full(500, 2.0), stream(0.3, 500, shift=0.01), stream(0.5, 6, 1)])
def test_what_is_not_identified_is_said(ratio):
    with pytest.warns(UserWarning, match="not identified"):
        assert not estimate_share(ratio).identified


def test_ratios_of_zero_and_huge_ones_are_understood():
    share = estimate_share(torch.tensor([0.0] * 60 + [5e34] * 40))
    assert float(share) == pytest.approx(0.4)
    assert estimate_share(np.linspace(0, 0.5, 50)).estimate == 0
    assert estimate_share(np.linspace(2, 9, 50)).estimate == 1


@pytest.mark.parametrize(
    ("ratio", "level", "message"),
    [([-1.0, 2.0], 0.95, "negative"), ([math.nan], 0.95, "NaN"), ([1.0, 2.0], 1.0, "level"), ([], 0.95, "empty")],
)
def test_bad_input_is_refused(ratio, level, message):
    with pytest.raises(ValueError, match=message):
        estimate_share(np.array(ratio), level=level)
