"""The draw with its KL term, and their gradient, as one compiled kernel each: the formulas of `reparametrization`.

`torch.compile` writes the kernels, once for all shapes and in some seconds. They move every parameter through memory
once, which on wide layers and small batches is most of what a Bayesian step costs. For the CPU see `native`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def _forward(theta: Tensor, mean: Tensor, rho: Tensor, prior_mean: Tensor, prior_rho: Tensor) -> Tensor:
    """Turn the noise in `theta` into the draw, in place; returns 2 KL."""
    std, precision = torch.exp(0.5 * rho), torch.exp(-prior_rho)
    theta.copy_(mean + std * theta)
    # Term by term, which is small where q is near the prior; sums of exp(rho) and of rho apart would cancel in float32.
    return ((std * std + (mean - prior_mean) ** 2) * precision - 1 - (rho - prior_rho)).sum()


def _backward(
    mean: Tensor, rho: Tensor, theta: Tensor, grad: Tensor, weight: Tensor, prior_mean: Tensor, prior_rho: Tensor
) -> tuple[Tensor, Tensor]:
    pull = weight * torch.exp(-prior_rho)
    grad_rho = 0.5 * (grad * (theta - mean) + pull * torch.exp(rho) - weight)
    return grad + pull * (mean - prior_mean), grad_rho


@functools.cache
def _compiled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(kernel, dynamic=True)


class FusedDrawWithKL(torch.autograd.Function):
    """(mean, rho, prior mean, prior std) -> (theta, KL)."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, rho: Tensor, prior_mean: Tensor | float, prior_std: float
    ) -> tuple[Tensor, Tensor]:
        """Draw theta and sum the divergence."""
        theta = torch.empty(mean.numel(), dtype=mean.dtype, device=mean.device).normal_()
        centre = prior_mean.reshape(-1) if isinstance(prior_mean, Tensor) else theta.new_tensor(prior_mean)
        prior_rho = theta.new_tensor(2 * math.log(prior_std))
        twice_kl = _compiled(_forward)(theta, mean.reshape(-1), rho.reshape(-1), centre, prior_rho)
        ctx.save_for_backward(mean, rho, theta, centre, prior_rho)
        ctx.set_materialize_grads(False)
        return theta.view_as(mean), 0.5 * twice_kl

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_theta: Tensor | None, grad_kl: Tensor | None) -> tuple[Tensor, Tensor, None, None]:
        """The closed forms; the draw and the KL term may each have gone unused."""
        mean, rho, theta, centre, prior_rho = ctx.saved_tensors
        grad = torch.zeros_like(theta) if grad_theta is None else grad_theta.reshape(-1)
        weight = theta.new_zeros(()) if grad_kl is None else grad_kl
        grads = _compiled(_backward)(mean.reshape(-1), rho.reshape(-1), theta, grad, weight, centre, prior_rho)
        return grads[0].view_as(mean), grads[1].view_as(mean), None, None
