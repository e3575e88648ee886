"""The draw with its KL term, and their gradient, in one pass each over parameters in float32 on the CPU."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from calibrant.posteriors.native import library
from calibrant.posteriors.native.kernel_arguments import prior_arguments, thread_arguments


class NativeDrawWithKL(torch.autograd.Function):
    """(mean, rho, prior mean, prior std, seed) -> (theta, KL), by the formulas of `reparametrization`.

    All tensors are float32, on the CPU, dense and laid out alike. Large ones are shared among as many threads as
    PyTorch uses; the result does not depend on their number.
    """

    @staticmethod
    def forward(
        ctx: Any, mean: Tensor, rho: Tensor, prior_mean: Tensor | float, prior_std: float, seed: int
    ) -> tuple[Tensor, Tensor]:
        """Draw theta and sum the divergence."""
        theta, prior_rho = torch.empty_like(mean), 2 * math.log(prior_std)
        pointers = [tensor.data_ptr() for tensor in (theta, mean, rho)]
        prior = (*prior_arguments(prior_mean), prior_rho)
        kl = library().calibrant_draw(*pointers, mean.numel(), seed, *prior, *thread_arguments())
        kept = (prior_mean,) if isinstance(prior_mean, Tensor) else ()
        ctx.save_for_backward(mean, rho, theta, *kept)
        ctx.prior_mean, ctx.prior_rho = None if kept else prior_mean, prior_rho
        ctx.differentiated = False
        ctx.set_materialize_grads(False)
        return theta, mean.new_tensor(kl)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_theta: Tensor | None, grad_kl: Tensor | None
    ) -> tuple[Tensor, Tensor, None, None, None]:
        """The closed forms; the draw and the KL term may each have gone unused."""
        mean, rho, theta, *kept = ctx.saved_tensors
        ctx.differentiated = True  # so that autograd may have let go of these
        if grad_theta is None:
            grad_theta = torch.zeros_like(theta)
        elif grad_theta.stride() != theta.stride():
            grad_theta = torch.empty_like(theta).copy_(grad_theta)
        weight = 0.0 if grad_kl is None else float(grad_kl)
        # Without a KL term the two gradients are one; autograd copies it should it be held elsewhere.
        to_mean, to_rho = torch.empty_like(mean) if weight else grad_theta, torch.empty_like(rho)
        prior = prior_arguments(kept[0] if kept else ctx.prior_mean)
        library().calibrant_draw_backward(
            *(to_mean.data_ptr() if weight else None, to_rho.data_ptr(), grad_theta.data_ptr(), weight),
            *(
                theta.data_ptr(),
                mean.data_ptr(),
                rho.data_ptr(),
                mean.numel(),
                *prior,
                ctx.prior_rho,
                *thread_arguments(),
            ),
        )
        return to_mean, to_rho, None, None, None
