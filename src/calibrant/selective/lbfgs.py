"""L-BFGS on a network's parameters: a loss that is the same at every call, minimized until it converges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

_DECREASE = 1e-7  # relative, of one iteration
_GRADIENT = 1e-5  # of each entry
_MEMORY = 20


class _StoppedError(Exception):
    """The caller has seen enough."""


def minimize(
    network: nn.Module, loss: Callable[[], Tensor], decay: float, iterations: int, stop: Callable[[], bool]
) -> tuple[int, bool]:
    """Minimize `loss()` + decay / 2 |parameters|^2; returns the iterations taken and whether the fit converged.

    It has where one iteration decreases the objective by less than 1e-7 of it, where no entry of the gradient
    exceeds 1e-5, or where `stop`, which is asked after every iteration, says so. SciPy's L-BFGS-B (Byrd et al. 1995)
    keeps the parameters in float64; the loss is computed in the dtype of the network.
    """
    from scipy.optimize import minimize as scipy_minimize

    parameters, taken = list(network.parameters()), 0
    start = parameters_to_vector(parameters).detach()

    @torch.no_grad()
    def put(values: Any) -> None:
        sizes = [parameter.numel() for parameter in parameters]
        parts = torch.split(torch.from_numpy(values).to(start), sizes)
        for parameter, part in zip(parameters, parts):
            parameter.copy_(part.view_as(parameter))

    def evaluate(values: Any) -> tuple[float, Any]:
        put(values)
        value = loss()
        slope = gradient(network, value, decay).double().cpu().numpy()
        return float(value.detach()) + decay / 2 * float(values @ values), slope

    def iterated(values: Any) -> None:
        nonlocal taken
        taken += 1
        put(values)
        if stop():
            raise _StoppedError

    limits = {"maxiter": iterations, "maxfun": 20 * iterations, "ftol": _DECREASE, "gtol": _GRADIENT}
    options = {"maxcor": _MEMORY, **limits}
    first = start.double().cpu().numpy()
    try:
        found = scipy_minimize(evaluate, first, jac=True, method="L-BFGS-B", callback=iterated, options=options)
    except _StoppedError:
        return taken, True
    put(found.x)
    return taken, bool(found.success)


def gradient(network: nn.Module, loss: Tensor, decay: float) -> Tensor:
    """The gradient (P,) of `loss` + decay / 2 |parameters|^2 in all parameters of `network`."""
    parameters = list(network.parameters())
    slope = parameters_to_vector(torch.autograd.grad(loss, parameters))
    return slope + decay * parameters_to_vector(parameters).detach()
