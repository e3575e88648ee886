"""Accuracy, cross-entropy and ECE on held-out data, each example seen by one rank only."""

from __future__ import annotations

import torch
from lightning_fabric import Fabric
from torch import nn

from calibrant import InputError
from calibrant.adapters.trees import move_to
from calibrant.metrics import expected_calibration_error
from calibrant.posteriors.deterministic import as_posterior
from calibrant.training.distributed import sum_over_ranks
from calibrant.training.training_data import Examples


@torch.no_grad()
def validate(
    model: nn.Module, data: Examples, fabric: Fabric, *, members: int, seed: int, batch_size: int = 512, bins: int = 15
) -> dict[str, float]:
    """Measures of the ensemble of `members` on `data`, computed once over all ranks and equal on all of them."""
    ensemble = as_posterior(model).sample(members, seed).to(fabric.device)
    found = torch.zeros(3, len(data), device=fabric.device)  # confidence, correct, -log p_y
    own = torch.arange(fabric.global_rank, len(data), fabric.world_size)
    for index in torch.split(own, batch_size):
        inputs, target = data.take(index)
        if target is None:
            raise InputError("the validation data has no labels")
        labels = target.to(fabric.device)
        with fabric.autocast():
            logits = ensemble(move_to(inputs, fabric.device))
        probabilities = logits.float().softmax(-1).mean(0)
        confidence, predicted = probabilities.max(-1)
        surprise = -probabilities.gather(1, labels[:, None]).squeeze(1).clamp_min(1e-38).log()
        found[:, index.to(fabric.device)] = torch.stack(
            [confidence.clamp(max=1), (predicted == labels).float(), surprise]
        )
    confidence, correct, surprise = sum_over_ranks(found, fabric).cpu()
    return {
        "accuracy": float(correct.mean()),
        "cross_entropy": float(surprise.mean()),
        "ece": float(expected_calibration_error(confidence, correct, bins=bins)),
    }
