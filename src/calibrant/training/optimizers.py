"""The optimizer of a training stage, and its rate as a function of the position: to resume needs no scheduler state."""

from __future__ import annotations

import math

import torch
from lightning_fabric import Fabric
from torch import nn

from calibrant.config.groups import OptimizerSettings
from calibrant.posteriors.base import Posterior, TrainingContext
from calibrant.posteriors.deterministic import as_posterior


def build_optimizer(
    model: nn.Module, settings: OptimizerSettings, *, num_data: int = 1, beta: float = 1.0, steps: int | None = None
) -> torch.optim.Optimizer:
    """The posterior's own optimizer, or SGD or Adam over its groups of parameters.

    `num_data` is N, `beta` the weight of the KL term, `steps` the number of steps, for posteriors whose optimizer needs
    them.
    """
    context = TrainingContext(
        rate=settings.rate,
        rho_rate=settings.rho_rate,
        weight_decay=settings.weight_decay,
        momentum=settings.momentum,
        num_data=num_data,
        beta=beta,
        steps=steps,
    )
    posterior = as_posterior(model)
    optimizer = posterior.optimizer(context) or _by_settings(posterior, settings, context)
    for group in optimizer.param_groups:
        group["base_rate"] = group["lr"]
    return optimizer


def _by_settings(posterior: Posterior, settings: OptimizerSettings, context: TrainingContext) -> torch.optim.Optimizer:
    groups = posterior.parameter_groups(context)
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr=settings.rate)
    return torch.optim.SGD(groups, lr=settings.rate, momentum=settings.momentum, nesterov=settings.nesterov)


def clip_gradients(posterior: Posterior, optimizer: torch.optim.Optimizer, norm: float, fabric: Fabric) -> None:
    """Shorten gradients to `norm` at most: all of them together, or in the lists that the posterior names."""
    precision = fabric.strategy.precision
    precision.unscale_gradients(optimizer)
    for parameters in posterior.clipped() or [list(precision.main_params(optimizer))]:
        nn.utils.clip_grad_norm_(parameters, norm, error_if_nonfinite=False)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Give every group its base rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_rate"] * factor


def rate_factor(settings: OptimizerSettings, epoch: int, step: int, steps_per_epoch: int, examples: int) -> float:
    """What the initial (one-cycle: the highest) rate is multiplied by at `step` of `epoch`, both counted from 0.

    With `extra_step` the schedule is ahead by one advance before every update and one more at the start of every
    epoch, and a cosine ends after `epochs * examples // batch_size` advances, as the published code has it.

    >>> from calibrant.config.groups import FitSettings
    >>> [round(rate_factor(FitSettings(), epoch, 0, 352, 45_000), 4) for epoch in (0, 29, 30, 60, 99)]
    [1.0, 1.0, 0.2, 0.04, 0.008]
    """
    if settings.schedule == "constant":
        return 1.0
    if settings.schedule == "step":
        return float(settings.step_factor ** -((epoch + settings.extra_step) // settings.step_every))
    position, total = epoch * steps_per_epoch + step, settings.epochs * steps_per_epoch
    if settings.extra_step:
        position, total = position + epoch + 2, max(1, settings.epochs * examples // settings.batch_size)
    if settings.schedule == "cosine":
        return _cosine(position / total, 1.0, settings.final_fraction)
    rising = settings.warmup * total
    if position < rising:
        return _cosine(position / rising, _ONE_CYCLE_START, 1.0)
    return _cosine((position - rising) / (total - rising), 1.0, settings.final_fraction)


_ONE_CYCLE_START = 1 / 25


def _cosine(part: float, start: float, end: float) -> float:
    """From `start` (part 0) to `end` (part 1) along half a cosine."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * part))
