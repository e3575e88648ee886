"""ESD against its definition by loops: mean and sample variance over the other points."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.losses import ESD, esd


def looped_esd(r: list[float], c: list[int]) -> float:
    """mean_i( mean_j(d_ij)^2 - var_j(d_ij) / (n - 1) ), j running over the n - 1 points other than i."""
    n = len(r)
    total = 0.0
    for i in range(n):
        d = [(c[j] - r[j]) * (1.0 if r[j] <= r[i] else 0.0) for j in range(n) if j != i]
        total += np.mean(d) ** 2 - np.var(d, ddof=1) / (n - 1)
    return float(total / n)


grid = st.integers(0, 8).map(lambda k: k / 8)
numbers = st.one_of(grid, st.floats(0, 1, allow_nan=False))


@settings(deadline=None, max_examples=80)
@given(st.lists(st.tuples(numbers, st.integers(0, 1)), min_size=3, max_size=20))
def test_equals_the_definition_with_ties(sample: list[tuple[float, int]]) -> None:
    r, c = (list(x) for x in zip(*sample, strict=True))
    value = esd(torch.tensor(r, dtype=torch.float64), torch.tensor(c))
    assert value.item() == pytest.approx(looped_esd(r, c), rel=1e-9, abs=1e-12)


def test_gradient_runs_through_the_differences_and_not_through_the_indicator() -> None:
    generator = torch.Generator().manual_seed(0)
    r = (torch.rand(30, generator=generator, dtype=torch.float64) * 12).round() / 12
    c = torch.randint(2, (30,), generator=generator).double()
    fast = r.clone().requires_grad_()
    slow = r.clone().requires_grad_()
    below = (r[None, :] <= r[:, None]).double() * (1 - torch.eye(30, dtype=torch.float64))
    d = below * (c - slow)[None, :]
    mean = d.sum(1) / 29
    variance = ((d - mean[:, None]).square() * (1 - torch.eye(30, dtype=torch.float64))).sum(1) / 28
    reference = (mean.square() - variance / 29).mean()
    value = esd(fast, c)
    torch.testing.assert_close(value, reference)
    torch.testing.assert_close(torch.autograd.grad(value, fast), torch.autograd.grad(reference, slow))


def test_gradcheck_through_the_logits() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(9, 3, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(3, (9,), generator=generator)
    assert torch.autograd.gradcheck(lambda x: ESD()(x, labels), (logits,))


def test_it_is_unbiased_where_the_plain_square_is_not() -> None:
    rng = np.random.default_rng(0)
    values = []
    for _ in range(3000):
        r = rng.uniform(0.5, 1, 6)
        c = (rng.uniform(size=6) < r).astype(float)
        values.append(esd(r, c).item())
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 4 * error
    assert min(values) < 0
    assert error < 0.002  # the plain square of a mean of 5 is off by var / 5, about 0.01


def test_miscalibration_shows() -> None:
    r = torch.linspace(0.5, 1, 4000, dtype=torch.float64)
    late = (torch.rand(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) < r - 0.3).long()
    assert esd(r, late).item() == pytest.approx(0.3**2 / 3, rel=0.1)  # (0.3 u)^2 with u uniform


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_points_give_zero_with_a_gradient_of_zero(n: int) -> None:
    r = torch.full((n,), 0.8, requires_grad=True)
    value = esd(r, torch.ones(n))
    assert value.item() == 0
    assert torch.autograd.grad(value, r)[0].tolist() == [0.0] * n


def test_a_million_points_in_float32() -> None:
    n = 1_000_000
    r = torch.linspace(0, 1, n, dtype=torch.float64)
    value = esd(r.float(), torch.zeros(n))  # E_j[1(r_j <= s) r_j] = s^2 / 2, squared s^4 / 4, mean 1 / 20
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(0.05, rel=1e-4)


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="confidence must lie in"):
        esd([0.5, 1.5, 0.2], [1, 0, 1])
    with pytest.raises(ValueError, match="correct must hold only 0"):
        esd([0.5, 0.5, 0.2], [1, 0, 3])
