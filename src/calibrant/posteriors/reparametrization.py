"""The draw of theta and its KL term, with closed-form gradients of both.

For q = N(mean, exp(rho)) and p = N(m, s^2), elementwise and summed,

    theta = mean + exp(rho / 2) * noise,
    KL(q || p) = 1/2 sum[ exp(rho) / s^2 - 1 - (rho - log s^2) + (mean - m)^2 / s^2 ].

With G = dL/dtheta and g = dL/dKL the gradients are

    dL/dmean = G + g (mean - m) / s^2,        dL/drho = 1/2 [ G (theta - mean) + g (exp(rho) / s^2 - 1) ],

so that neither the noise nor a second set of gradients has to be kept. A network with wide layers and small batches
spends its time on moving parameters through memory: on a CPU both directions are therefore one pass each by the kernels
of `native`, or where these cannot be built and the tensors are large, few operations in place. Elsewhere, and under
`torch.compile`, which fuses by itself, plain operations do the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calibrant.posteriors.native import available
from calibrant.posteriors.native.draw import NativeDrawWithKL
from calibrant.posteriors.noise import SQRT2, fill_unscaled_normal, random_bits

_BLOCK = 1 << 20  # large: every operation on a block wakes the threads
BLOCKS_PAY = 3 << 14
"""Numbers per tensor, on average, from which on blocks are faster than plain operations (docs/posterior.md)."""


def gaussian_kl(mean: Tensor, rho: Tensor, prior_mean: Tensor | float, prior_std: float) -> Tensor:
    """KL(N(mean, exp(rho)) || N(prior_mean, prior_std^2)), summed.

    >>> float(gaussian_kl(torch.ones(1), torch.zeros(1), 0.0, 1.0))
    0.5
    """
    log_ratio = rho - 2 * math.log(prior_std)
    # expm1(t) - t is exact near t = 0, where exp(t) - 1 - t loses all digits in float32.
    return 0.5 * (torch.expm1(log_ratio) - log_ratio + ((mean - prior_mean) / prior_std) ** 2).sum()


def draw(mean: Tensor, rho: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One differentiable draw of N(mean, exp(rho)), in plain operations."""
    noise = torch.empty_like(mean).normal_(generator=generator)
    return mean + torch.exp(0.5 * rho) * noise


def draw_all(
    means: list[Tensor], rhos: list[Tensor], prior_means: list[Tensor | float], prior_std: float, *, fuse: bool | None
) -> tuple[list[Tensor], Tensor | None]:
    """Draw every tensor of theta; beside them their summed KL if it came for free, else None.

    On the CPU in float32 by the kernels of `native`, unless `fuse` is False: True where they cannot be built is an
    error, None does without them, in blocks if the tensors are large. Small tensors, those elsewhere, under
    `torch.compile` and under the transforms of `torch.func`, in plain operations.
    """
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    small = sum(mean.numel() for mean in means) < BLOCKS_PAY * len(means)
    plain = traced or (small and not _wanted(fuse)) or not dense_alike(means, rhos, prior_means)
    kernels = not plain and fused(fuse, means, rhos, prior_means)
    if plain or (small and not kernels):
        return [draw(mean, rho) for mean, rho in zip(means, rhos)], None
    apply: Any
    sources: Sequence[Any]  # of the noise
    if kernels:
        apply, sources = NativeDrawWithKL.apply, torch.randint(2**63 - 1, (len(means),), device="cpu").tolist()
    else:
        apply, sources = _DrawWithKL.apply, [random_bits()] * len(means)
    pairs = [apply(m, r, p, prior_std, source) for m, r, p, source in zip(means, rhos, prior_means, sources)]
    return [theta for theta, _ in pairs], torch.stack([kl for _, kl in pairs]).sum()


def fused(fuse: bool | None, *columns: Sequence[Tensor | float]) -> bool:
    """Whether the kernels are to be used: the tensors are in float32, and `fuse` wants them, or leaves it to them."""
    narrow = all(one.dtype == torch.float32 for column in columns for one in column if isinstance(one, Tensor))
    return narrow and _wanted(fuse)


def _wanted(fuse: bool | None) -> bool:
    return available() if fuse is None else fuse


def dense_alike(tensors: Sequence[Tensor], *columns: Sequence[Tensor | float]) -> bool:
    """Whether the memory of all is a CPU's, without gaps, and that of each row in one order; numbers fit everything."""
    return all(
        not isinstance(one, Tensor) or (_dense_on_cpu(one) and one.stride() == first.stride())
        for column in (tensors, *columns)
        for first, one in zip(tensors, column)
    )


def _dense_on_cpu(tensor: Tensor) -> bool:
    """Whether the memory of `tensor` is a CPU's and holds its elements and nothing else, in whatever order."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype in (torch.float32, torch.float64)
        and (tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)))
    )


def _flat(tensor: Tensor) -> Tensor:
    """A dense tensor as a vector, in the order of its memory."""
    return tensor.as_strided((tensor.numel(),), (1,))


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Aligned flat pieces of equally shaped tensors."""
    return zip(*(torch.split(_flat(t), _BLOCK) for t in tensors))


def _shift(mean: Tensor, prior_mean: Tensor | float) -> Tensor:
    """`mean - prior_mean`, without a pass where the prior has mean zero."""
    return mean if isinstance(prior_mean, float) and prior_mean == 0 else mean - prior_mean


def _prior_blocks(prior_mean: Tensor | float) -> Any:
    """The prior mean by block: pieces of a tensor, or its one value for ever."""
    return torch.split(_flat(prior_mean), _BLOCK) if isinstance(prior_mean, Tensor) else repeat(prior_mean)


class _DrawWithKL(torch.autograd.Function):
    """(mean, rho, prior mean, prior std, bits) -> (theta, KL), by the formulas of this module."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, rho: Tensor, prior_mean: Tensor | float, prior_std: float, bits: np.random.SFC64
    ) -> tuple[Tensor, Tensor]:
        """Draw theta and sum the divergence."""
        theta = torch.empty_like(mean)
        scratch = mean.new_empty(min(_BLOCK, mean.numel()))
        sums = []
        for (part, part_mean, part_rho), part_prior in zip(_blocks(theta, mean, rho), _prior_blocks(prior_mean)):
            std = torch.mul(part_rho, 0.5, out=scratch[: part.numel()]).exp_()
            torch.addcmul(part_mean, fill_unscaled_normal(part, bits), std, value=SQRT2, out=part)
            shift = _shift(part_mean, part_prior)
            squares = (torch.dot(std, std) + torch.dot(shift, shift)) / prior_std**2
            sums.append(squares - part_rho.sum() - part.numel() * (1 - 2 * math.log(prior_std)))
        ctx.save_for_backward(mean, rho, theta)
        ctx.prior_mean, ctx.prior_std = prior_mean, prior_std
        ctx.differentiated = False
        ctx.set_materialize_grads(False)
        return theta, 0.5 * torch.stack(sums).sum()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_theta: Tensor | None, grad_kl: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """The closed forms; the draw and the KL term may each have gone unused."""
        mean, rho, theta = ctx.saved_tensors
        ctx.differentiated = True  # so that autograd may have let go of these
        if grad_theta is None:
            grad_theta = torch.zeros_like(theta)
        elif grad_theta.stride() != theta.stride():
            grad_theta = torch.empty_like(theta).copy_(grad_theta)
        weight = 0.0 if grad_kl is None else float(grad_kl)
        pull = weight / ctx.prior_std**2
        grad_mean, grad_rho = torch.empty_like(mean), torch.empty_like(rho)
        scratch = mean.new_empty(min(_BLOCK, mean.numel()))
        blocks = _blocks(grad_mean, grad_rho, grad_theta, theta, mean, rho)
        for (to_mean, to_rho, part, part_theta, part_mean, part_rho), part_prior in zip(
            blocks, _prior_blocks(ctx.prior_mean)
        ):
            divergence = torch.exp(part_rho, out=scratch[: part.numel()]).mul_(0.5 * pull).sub_(0.5 * weight)
            torch.sub(part_theta, part_mean, out=to_rho)
            torch.addcmul(divergence, to_rho, part, value=0.5, out=to_rho)
            torch.add(part, _shift(part_mean, part_prior), alpha=pull, out=to_mean)
        return grad_mean, grad_rho, None, None, None
