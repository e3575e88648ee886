"""The draw with its KL term, and their gradient, as one compiled kernel each: the formulas of `reparametrization`.

`torch.compile` writes the kernels, once for all shapes; on a CPU that takes a C++ compiler and some seconds. They move
every parameter through memory once, which on wide layers and small batches is most of what a Bayesian step costs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calibrant.noise import SQRT2, fill_unscaled_normal

_NOISE_BLOCK = 1 << 16


def _forward(theta: Tensor, mean: Tensor, rho: Tensor, scale: Tensor, prior_mean: Tensor, precision: Tensor) -> Tensor:
    """Turn the noise in `theta` into the draw, in place."""
    std, shift = torch.exp(0.5 * rho), mean - prior_mean
    theta.copy_(mean + std * theta * scale)
    return ((std * std + shift * shift) * precision - rho).sum()


def _backward(
    mean: Tensor, rho: Tensor, theta: Tensor, grad: Tensor, weight: Tensor, prior_mean: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor]:
    pull = weight * precision
    grad_rho = 0.5 * (grad * (theta - mean) + pull * torch.exp(rho) - weight)
    return grad + pull * (mean - prior_mean), grad_rho


@functools.cache
def _kernels() -> tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]:
    return torch.compile(_forward, dynamic=True), torch.compile(_backward, dynamic=True)


class FusedDrawWithKL(torch.autograd.Function):
    """(mean, rho, prior mean, prior std, bits) -> (theta, KL); `bits` is the source of noise, None the device's own."""

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, rho: Tensor, prior_mean: Tensor | float, prior_std: float, bits: Any
    ) -> tuple[Tensor, Tensor]:
        """Draw theta and sum the divergence."""
        theta = torch.empty(mean.numel(), dtype=mean.dtype, device=mean.device)
        centre = prior_mean.reshape(-1) if isinstance(prior_mean, Tensor) else theta.new_tensor(prior_mean)
        precision, scale = theta.new_tensor(prior_std**-2), theta.new_tensor(1.0 if bits is None else SQRT2)
        for part in torch.split(theta, _NOISE_BLOCK) if bits is not None else ():
            fill_unscaled_normal(part, bits)
        noise = theta.normal_() if bits is None else theta
        sums = _kernels()[0](noise, mean.reshape(-1), rho.reshape(-1), scale, centre, precision)
        ctx.save_for_backward(mean, rho, theta, centre, precision)
        ctx.set_materialize_grads(False)
        constant = theta.numel() * (1 - 2 * math.log(prior_std))
        return theta.view_as(mean), 0.5 * (sums - constant)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_theta: Tensor | None, grad_kl: Tensor | None
    ) -> tuple[Tensor, Tensor, None, None, None]:
        """The closed forms; the draw and the KL term may each have gone unused."""
        mean, rho, theta, centre, precision = ctx.saved_tensors
        grad = torch.zeros_like(theta) if grad_theta is None else grad_theta.reshape(-1)
        weight = theta.new_zeros(()) if grad_kl is None else grad_kl
        grads = _kernels()[1](mean.reshape(-1), rho.reshape(-1), theta, grad, weight, centre, precision)
        return grads[0].view_as(mean), grads[1].view_as(mean), None, None, None
