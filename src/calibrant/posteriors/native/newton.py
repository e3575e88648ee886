"""The step of IVON in one pass over parameters in float32 on the CPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd.graph import increment_version

from calibrant.posteriors.native import library
from calibrant.posteriors.native.kernel_arguments import prior_arguments, thread_arguments


def native_step(
    mean: Tensor, average: Tensor, rho: Tensor, center: Tensor | float, steps: int, group: dict[str, Any]
) -> None:
    """Move `mean`, `rho` and the running `average` of the gradient, by the formulas of `ivon`; `steps` counts this one.

    All tensors and the gradients of `mean` and `rho` are float32, on the CPU, dense and laid out alike.
    """
    assert mean.grad is not None
    assert rho.grad is not None
    fresh, ess, decay = 1 - group["hessian_momentum"], group["ess"], group["weight_decay"]
    tensors = (mean, average, rho, mean.grad, rho.grad)
    library().calibrant_newton(
        *(tensor.data_ptr() for tensor in tensors),
        *(mean.numel(), *prior_arguments(center), 1 - group["momentum"], 1 / (1 - group["momentum"] ** steps)),
        *(decay, group["lr"] / (1 - group["momentum"]) / group["reference"]),
        *(2 * ess * fresh, fresh * ess * decay, fresh, *thread_arguments()),
    )
    for tensor in (mean, average, rho):
        increment_version(tensor)  # autograd does not see what C writes
