"""What determines each stage: the content of its key.

Whatever is not here cannot change its result but by rounding or, as device, compiler and memory format do for Bayesian
networks, by giving the same noise to other weights.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import nn

from calibrant.schemes import Scheme
from calibrant.settings import OptimizerSettings, Settings
from calibrant.training.inputs import TrainingData, fingerprint


def network_identity(settings: Settings, network: nn.Module | None) -> Any:
    """The name of a backbone, or the structure and the weights of a user's own module."""
    if network is None:
        return settings.backbone.name
    digest = hashlib.sha256(repr(network).encode())
    for name, value in network.state_dict().items():
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fit_inputs(scheme: Scheme, settings: Settings, data: TrainingData, network: nn.Module | None) -> dict[str, Any]:
    """What determines the fit of `scheme.base`."""
    return {
        "stage": "fit",
        "scheme": str(scheme.base),
        "seed": settings.seed,
        "network": network_identity(settings, network),
        "normalize": settings.data.normalize,
        "precision": settings.engine.precision,
        "augmentation": settings.augmentation.model_dump(),
        "optimizer": _optimizer(settings.fit, scheme),
        **_loss(scheme, settings),
        "train": fingerprint(data.train),
        "validation": fingerprint(data.validation),
    }


def finetune_inputs(scheme: Scheme, settings: Settings, data: TrainingData, parent: str) -> dict[str, Any]:
    """What determines the fine-tuning of `scheme` from the fit with the key `parent`."""
    return {
        "stage": "fine-tune",
        "scheme": str(scheme),
        "parent": parent,
        "optimizer": _optimizer(settings.finetune, scheme),
        **_loss(scheme, settings),
        "uncertainty": fingerprint(data.uncertainty),
    }


def predict_inputs(scheme: Scheme, settings: Settings, data: TrainingData, parent: str) -> dict[str, Any]:
    """What determines the predictions of the model with the key `parent`."""
    sets = {"validation": data.validation, "test": data.test, **data.ood}
    return {
        "stage": "predict",
        "parent": parent,
        "members": settings.posterior.members if scheme.bayesian else 1,
        "data": {name: fingerprint(part) for name, part in sets.items()},
    }


def validate_inputs(parent: str, members: int, bins: int) -> dict[str, Any]:
    """What determines the validation measures of the model with the key `parent`."""
    return {"stage": "validate", "parent": parent, "members": members, "bins": bins}


def score_inputs(settings: Settings, parent: str) -> dict[str, Any]:
    """What determines the outlier scores beside the predictions with the key `parent`."""
    augmented = settings.augmentation.model_dump() if settings.selector.views > 1 else None
    return {
        "stage": "score",
        "parent": parent,
        "outliers": settings.outliers.identity(),
        "feature_layer": settings.backbone.feature_layer,
        "views": settings.selector.views,
        "augmentation": augmented,
        **({"entropy": True} if settings.selector.entropy else {}),
    }


def select_inputs(settings: Settings, parent: str) -> dict[str, Any]:
    """What determines the selector on the outlier scores with the key `parent`."""
    return {"stage": "select", "parent": parent, "selector": settings.selector.identity()}


def _optimizer(settings: OptimizerSettings, scheme: Scheme) -> dict[str, Any]:
    values = settings.model_dump(mode="json")
    return {**values, "clip_norm": settings.clip_norm.of(scheme.family)}


def _loss(scheme: Scheme, settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if scheme.bayesian:
        found["posterior"] = settings.posterior.model_dump(exclude={"members"})
    if scheme.calibrated:
        chosen = settings.calibration.model_dump(exclude={"grid", "max_accuracy_drop"})
        found["calibration"] = {**chosen, "weight": settings.calibration.weight.of(scheme.family)}
    return found
