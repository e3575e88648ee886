from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from calibrant.posteriors.noise import SQRT2, fill_unscaled_normal, random_bits


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_noise_is_standard_normal_to_its_tails(dtype: torch.dtype) -> None:
    n = 1_000_001
    noise = SQRT2 * fill_unscaled_normal(torch.empty(n, dtype=dtype), random_bits()).double().numpy()
    assert np.isfinite(noise).all()
    assert stats.kstest(noise, "norm").pvalue > 1e-4
    for z in (2.0, 3.0, 4.0):
        expected = 2 * n * stats.norm.sf(z)
        assert abs((np.abs(noise) > z).sum() - expected) < 5 * np.sqrt(expected)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5 / np.sqrt(n)


def test_the_extreme_bit_patterns_give_finite_noise() -> None:
    class Extremes:
        def random_raw(self, n: int) -> np.ndarray:
            patterns = np.array([2**31 - 1, -(2**31), 0, -1], dtype=np.int32)
            return np.resize(patterns, 2 * n).view(np.uint64)

    noise = fill_unscaled_normal(torch.empty(4), Extremes())  # type: ignore[arg-type]
    assert torch.isfinite(noise).all()
    assert noise.abs().max() * SQRT2 > 5


def test_the_bits_follow_the_seed_of_torch() -> None:
    torch.manual_seed(3)
    first = fill_unscaled_normal(torch.empty(7), random_bits())
    second = fill_unscaled_normal(torch.empty(7), random_bits())
    torch.manual_seed(3)
    assert torch.equal(fill_unscaled_normal(torch.empty(7), random_bits()), first)
    assert not torch.equal(first, second)
