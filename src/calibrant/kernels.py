"""The Laplacian quadratic form, exact in O(n log n).

In one dimension the kernel exp(-|r_i - r_j| / h) factors along the sorted points: what all points up to r_i send to
r_i is what they sent to the point before it, damped by the gap, plus r_i's own weight. That linear recurrence needs
neither the n x n matrix nor exp(r / h), which overflows; it is stable for any width and any range of the points.

May import: checks.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant import checks

_DENSE = 256  # points up to which the matrix is faster than sorting
_BLOCK = 64
_LEAF = 128


def laplacian_quadratic_form(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """sum_ij w_i w_j exp(-|r_i - r_j| / width), over all pairs including i = j.

    Differentiable any number of times in both arguments. Tied points exert no gradient on each other, as the
    derivative of |r_i - r_j| is 0 at 0. A bilinear form between two groups is this form with signed weights.

    `points` and `weights` have shape (n,); points may be any real numbers, weights of either sign. The scalar returned
    has the wider dtype of the two, at least float32; it is computed in float64 where the device has that.

    >>> points = torch.tensor([0.0, 0.4], dtype=torch.float64)
    >>> laplacian_quadratic_form(points, torch.ones(2, dtype=torch.float64), 0.4)  # 2 + 2 / e
    tensor(2.7358, dtype=torch.float64)
    """
    checks.positive("width", width)
    points, weights = _checked("points", points), _checked("weights", weights)
    checks.same_length("weights", weights, "points", points)
    wide = accumulation_dtype(points.device)
    narrow = torch.promote_types(torch.promote_types(points.dtype, weights.dtype), torch.float32)
    form = _dense_form if len(points) <= _DENSE else _sorted_form
    return form(points.to(wide), weights.to(wide), width).to(narrow)


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root with value and gradient 0 where x <= 0: rounding may leave a sum of squares below 0.

    >>> x = torch.tensor([4.0, 0.0, -1e-9], requires_grad=True)
    >>> safe_sqrt(x).detach()
    tensor([2., 0., 0.])
    >>> torch.autograd.grad(safe_sqrt(x).sum(), x)[0]
    tensor([0.2500, 0.0000, 0.0000])
    """
    positive = x > 0
    return torch.where(positive, torch.where(positive, x, 1).sqrt(), 0)


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """The dtype for long sums: float64 where the device has it."""
    return torch.float32 if device.type == "mps" else torch.float64


def _dense_form(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """The double sum as it is written."""
    kernel = ((points[:, None] - points).abs() / -width).exp()
    return torch.dot(weights, kernel @ weights)


def _sorted_form(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """The sum over pairs of different points, twice, and over pairs of tied ones."""
    ordered, order = points.sort()
    w = weights.gather(0, order)
    cross = (w * _below(ordered, w, width)).sum()
    tied = torch.zeros_like(w).scatter_add(0, _group_starts(ordered), w).square().sum()
    return 2 * cross + tied


def _checked(name: str, value: Tensor) -> Tensor:
    value = checks.floating(name, value, dims=1)
    return checks.finite(name, value) if checks.values_visible(value) else value


def _group_starts(points: Tensor) -> Tensor:
    """For each of the sorted points, the index of the first point tied with it."""
    index = torch.arange(len(points), device=points.device)
    index[1:] *= points[1:] != points[:-1]
    return index.cummax(0).values


def _running_sums(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """F_i = sum_{j <= i} w_j exp(-(r_i - r_j) / width) for sorted points, in O(n).

    F_i = w_i + exp(-(r_i - r_{i-1}) / width) F_{i-1} runs over all blocks of consecutive points at once; what the
    blocks before send into a block is the same recurrence over the ends of the blocks. A few points are summed
    directly, which is faster there.
    """
    n = len(points)
    if n <= _LEAF:
        kernel = ((points - points[:, None]).clamp(max=0) / width).exp().tril()
        return (kernel * weights).sum(1)
    size = min(_BLOCK, math.isqrt(n))
    blocks = -(-n // size)
    padding = blocks * size - n
    r = torch.cat([points, points[-1:].expand(padding)]).view(blocks, size).t().contiguous()
    w = torch.cat([weights, weights.new_zeros(padding)]).view(blocks, size).t().contiguous()
    decay = ((r[:-1] - r[1:]) / width).exp()
    rows = w.unbind()
    for before, here, damping in zip(rows, rows[1:], decay.unbind()):
        here.addcmul_(damping, before)
    carried = _running_sums(r[-1], w[-1], width)[:-1]
    w[:, 1:] += carried * ((r[-1, :-1] - r[:, 1:]) / width).exp()
    return w.t().reshape(-1)[:n]


def _sums_below(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """s_i = sum_{j: r_j < r_i} w_j exp(-(r_i - r_j) / width) for sorted points; ties send nothing to each other."""
    before = torch.zeros_like(points)
    before[1:] = _running_sums(points, weights, width)[:-1]
    before[1:] *= ((points[:-1] - points[1:]) / width).exp()
    return before.gather(0, _group_starts(points))


class _SumsBelow(torch.autograd.Function):
    """`_sums_below` with its gradient, which is made of the same sums and so can be differentiated again.

    With u the incoming gradient: dw_j = sum_{i: r_i > r_j} u_i exp(-(r_i - r_j) / width); dr = (w dw - u s) / width.
    """

    @staticmethod
    def forward(points: Tensor, weights: Tensor, width: float) -> Tensor:
        return _sums_below(points, weights, width)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None:
        points, weights, ctx.width = inputs
        ctx.save_for_backward(points, weights, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        points, weights, sums = ctx.saved_tensors
        above = _below(-points.flip(0), grad.flip(0), ctx.width).flip(0)
        return (weights * above - grad * sums) / ctx.width, above, None


# The same as an operator: `torch.compile` keeps it whole instead of unrolling its loop.
_compiled = torch.library.custom_op("calibrant::laplacian_sums_below", _sums_below, mutates_args=())
_compiled.register_fake(lambda points, weights, width: torch.empty_like(points))
_compiled.register_autograd(_SumsBelow.backward, setup_context=_SumsBelow.setup_context)


def _below(points: Tensor, weights: Tensor, width: float) -> Tensor:
    """`_sums_below`, differentiable: the operator while compiling, else the function, which `torch.func` can take."""
    result: Tensor
    if torch.compiler.is_compiling():
        result = _compiled(points, weights, width)
    else:
        result = _SumsBelow.apply(points, weights, width)  # type: ignore[no-untyped-call]
    return result
