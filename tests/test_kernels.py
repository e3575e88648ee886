"""The Laplacian quadratic form against the n x n matrix in float64, with gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from calibrant import kernels
from calibrant.kernels import laplacian_quadratic_form, safe_sqrt

WIDTHS = [0.005, 0.2, 0.4, 3.0]


@pytest.fixture(autouse=True, scope="module", params=[0, 256], ids=["sorted", "dense below 256"])
def dense(request):
    """Every test twice: once with all sums sorted, once as they are, with few points summed directly."""
    before, kernels._DENSE = kernels._DENSE, request.param
    yield
    kernels._DENSE = before


reals = st.floats(-2, 2, allow_nan=False, width=32)


def matrix_form(points: Tensor, weights: Tensor, width: float) -> Tensor:
    gaps = (points[:, None] - points[None, :]).abs()
    return (weights[:, None] * weights[None, :] * torch.exp(-gaps / width)).sum()


def sample(n: int, *, ties: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(n, generator=generator, dtype=torch.float64)
    if ties:
        points = (points * 10).round() / 10
    weights = torch.randn(n, generator=generator, dtype=torch.float64)
    return points.requires_grad_(), weights.requires_grad_()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 11, 127, 128, 129, 130, 200, 1000, 1500])
def test_equals_the_matrix_with_gradients(n: int, ties: bool, width: float) -> None:
    points, weights = sample(n, ties=ties, seed=n)
    fast, slow = laplacian_quadratic_form(points, weights, width), matrix_form(points, weights, width)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    for ours, theirs in zip(
        torch.autograd.grad(fast, (points, weights)), torch.autograd.grad(slow, (points, weights)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(reals, reals), min_size=1, max_size=40), st.sampled_from(WIDTHS))
def test_equals_the_matrix_for_any_numbers(pairs: list[tuple[float, float]], width: float) -> None:
    points, weights = (torch.tensor(x, dtype=torch.float64).requires_grad_() for x in zip(*pairs, strict=True))
    fast, slow = laplacian_quadratic_form(points, weights, width), matrix_form(points, weights, width)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    for ours, theirs in zip(
        torch.autograd.grad(fast, (points, weights)), torch.autograd.grad(slow, (points, weights)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [5, 140])
def test_gradcheck_once_and_twice(n: int) -> None:
    generator = torch.Generator().manual_seed(3)
    points = torch.linspace(0, 1, n, dtype=torch.float64)[torch.randperm(n, generator=generator)].requires_grad_()
    weights = torch.randn(n, generator=generator, dtype=torch.float64).requires_grad_()

    def form(points: Tensor, weights: Tensor) -> Tensor:
        return laplacian_quadratic_form(points, weights, 0.4)

    assert torch.autograd.gradcheck(form, (points, weights), fast_mode=n > 100)
    assert torch.autograd.gradgradcheck(form, (points, weights), fast_mode=n > 100)


def test_tied_points_exert_no_gradient_on_each_other() -> None:
    points = torch.full((9,), 0.7, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(1.0, 10.0, dtype=torch.float64)
    form = laplacian_quadratic_form(points, weights, 0.4)
    assert form.item() == 45.0**2
    assert torch.equal(torch.autograd.grad(form, points)[0], torch.zeros(9, dtype=torch.float64))


def test_order_and_shift_do_not_matter() -> None:
    points, weights = sample(700, ties=True)
    value = laplacian_quadratic_form(points, weights, 0.1)
    order = torch.randperm(700, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(laplacian_quadratic_form(points[order], weights[order], 0.1), value)
    torch.testing.assert_close(laplacian_quadratic_form(points + 100, weights, 0.1), value, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(laplacian_quadratic_form(-points, weights, 0.1), value)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_any_range_over_width_is_stable(scale: float) -> None:
    points, weights = sample(600)
    wide = (points * scale).detach().requires_grad_()
    fast, slow = laplacian_quadratic_form(wide, weights, 0.005), matrix_form(wide, weights, 0.005)
    torch.testing.assert_close(fast, slow, rtol=1e-11, atol=1e-11)
    ours, theirs = torch.autograd.grad(fast, wide)[0], torch.autograd.grad(slow, wide)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_float32_points_at_the_smallest_width() -> None:
    points, weights = (x.detach().float().requires_grad_() for x in sample(2000))
    exact_points, exact_weights = (x.detach().double().requires_grad_() for x in (points, weights))
    fast = laplacian_quadratic_form(points, weights, 0.005)
    exact = matrix_form(exact_points, exact_weights, 0.005)
    assert fast.dtype == torch.float32
    torch.testing.assert_close(fast.double(), exact, rtol=1e-6, atol=0)
    ours = torch.autograd.grad(fast, (points, weights))
    theirs = torch.autograd.grad(exact, (exact_points, exact_weights))
    for mine, reference in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=1e-5, atol=1e-4)


def test_a_million_points_on_a_grid_have_a_closed_form() -> None:
    """Weights 1 on an even grid: n + 2 sum_k (n - k) q^k, with q = exp(-step / width)."""
    n, width = 1_000_000, 0.005
    step = 1 / n
    q = math.exp(-step / width)
    k = np.arange(1, n, dtype=np.float64)
    expected = n + 2 * float(np.sum((n - k) * q**k))
    points = torch.arange(n, dtype=torch.float64) * step
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    form = laplacian_quadratic_form(points[order], torch.ones(n, dtype=torch.float64), width)
    assert form.item() == pytest.approx(expected, rel=1e-9)


def test_a_million_signed_weights_do_not_cancel_wrongly() -> None:
    """Signs +1, -1 on pairs a step apart: far from each other, so that only pairs count: 2 (1 - q) each."""
    pairs, width = 500_000, 1 / 256
    starts = torch.arange(pairs, dtype=torch.float64) * 40 * width
    points = torch.stack([starts, starts + width], 1).flatten()
    weights = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(pairs)
    form = laplacian_quadratic_form(points, weights, width)
    assert form.item() == pytest.approx(pairs * 2 * (1 - math.exp(-1)), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    points, weights = (x.detach().to(dtype).requires_grad_() for x in sample(300))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        form = laplacian_quadratic_form(points, weights, 0.4)
    assert form.dtype == torch.float32
    torch.testing.assert_close(form.double(), matrix_form(points.double(), weights.double(), 0.4), rtol=1e-6, atol=1e-5)
    form.backward()
    assert points.grad is not None
    assert points.grad.dtype == dtype
    assert torch.isfinite(points.grad).all()


@pytest.mark.parametrize("n", [64, 300])
def test_compiles_without_a_graph_break(n: int) -> None:
    def root(points: Tensor, weights: Tensor) -> Tensor:
        return safe_sqrt(laplacian_quadratic_form(points, weights, 0.4))

    points, weights = sample(n)
    compiled = torch.compile(root, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(points, weights), root(points, weights))
    ours = torch.autograd.grad(compiled(points, weights), (points, weights))
    torch.testing.assert_close(ours, torch.autograd.grad(root(points, weights), (points, weights)))


def test_differentiates_under_torch_func() -> None:
    points, weights = sample(50)
    expected = torch.autograd.grad(laplacian_quadratic_form(points, weights, 0.4), points)[0]
    gradient = torch.func.grad(lambda r: laplacian_quadratic_form(r, weights.detach(), 0.4))(points.detach())
    torch.testing.assert_close(gradient, expected)


def test_the_operator_obeys_the_rules_of_the_dispatcher() -> None:
    points, weights = (x.detach() for x in sample(150, ties=True))
    torch.library.opcheck(torch.ops.calibrant.laplacian_sums_below.default, (points.sort().values, weights, 0.4))


def test_safe_sqrt_is_exact_where_positive_and_flat_elsewhere() -> None:
    x = torch.tensor([9.0, 1e-40, 0.0, -1e-12], dtype=torch.float64, requires_grad=True)
    root = safe_sqrt(x)
    assert root.tolist() == [3.0, 1e-20, 0.0, 0.0]
    assert torch.autograd.grad(root.sum(), x)[0].tolist() == pytest.approx([1 / 6, 5e19, 0.0, 0.0])


@pytest.mark.parametrize(
    ("points", "weights", "width", "message"),
    [
        (torch.rand(3), torch.rand(2), 0.4, "weights has 2 entries, but points has 3"),
        (torch.rand(3), torch.rand(3), 0.0, "width must be positive"),
        (torch.rand(3), torch.rand(3), math.inf, "width must be positive"),
        (torch.rand(3, 1), torch.rand(3), 0.4, "points must have 1 dimension"),
        (torch.rand(0), torch.rand(0), 0.4, "points is empty"),
        (torch.arange(3), torch.rand(3), 0.4, "points must be floating point"),
        (torch.tensor([0.1, math.nan]), torch.rand(2), 0.4, "points holds NaN"),
        (torch.rand(2), torch.tensor([0.1, math.inf]), 0.4, "weights holds NaN or infinity"),
    ],
)
def test_bad_input(points: Tensor, weights: Tensor, width: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        laplacian_quadratic_form(points, weights, width)
