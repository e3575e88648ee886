"""The optimizer of a training stage."""

from __future__ import annotations

import torch
from torch import nn

from calibrant.config.groups import OptimizerSettings
from calibrant.posteriors.mean_field import MeanField


def build_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """SGD or Adam over the parameters of `model`; log variances get `rho_rate` and no weight decay.

    Decaying a log variance would pull the standard deviation towards 1.
    """
    rhos = [rho for rho in model.rho.parameters() if rho.requires_grad] if isinstance(model, MeanField) else []
    of_rho = {id(rho) for rho in rhos}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in of_rho]
    groups = [{"params": others, "weight_decay": settings.weight_decay, "base_rate": settings.rate}]
    if rhos:
        groups.append({"params": rhos, "weight_decay": 0.0, "base_rate": settings.rho_rate or settings.rate})
    if settings.optimizer == "adam":
        return torch.optim.Adam(groups, lr=settings.rate)
    return torch.optim.SGD(groups, lr=settings.rate, momentum=settings.momentum, nesterov=settings.nesterov)


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Give every group its base rate times `factor`."""
    for group in optimizer.param_groups:
        group["lr"] = group["base_rate"] * factor
