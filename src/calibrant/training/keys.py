"""What determines each stage: the content of its key.

Whatever is not here cannot change its result but by rounding or, as device, compiler and memory format do for Bayesian
networks, by giving the same noise to other weights.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from calibrant.config.dependence import identity
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.files import read_bytes
from calibrant.training.training_data import Examples, TrainingData, fingerprint


def network_identity(settings: Settings, network: nn.Module | None) -> Any:
    """The name of a backbone, or the structure and the weights of a user's own module."""
    if network is None:
        weights = settings.backbone.weights
        if weights is None:
            return settings.backbone.name
        return [settings.backbone.name, hashlib.sha256(read_bytes(Path(weights))).hexdigest()]
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
        **({"statistics": [settings.data.mean, settings.data.std]} if settings.data.mean or settings.data.std else {}),
        "precision": settings.engine.precision,
        "augmentation": identity(settings)["augmentation"],
        "optimizer": _optimizer(settings, "fit", scheme),
        **_loss(scheme, settings),
        "train": fingerprint(data.train),
        "validation": fingerprint(data.validation),
        **({} if data.weights is None else {"weights": fingerprint(ArrayData(data.weights[:, None]))}),
    }


def finetune_inputs(scheme: Scheme, settings: Settings, data: TrainingData, parent: str) -> dict[str, Any]:
    """What determines the fine-tuning of `scheme` from the fit with the key `parent`."""
    return {
        "stage": "fine-tune",
        "scheme": str(scheme),
        "parent": parent,
        "optimizer": _optimizer(settings, "finetune", scheme),
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


def calibrate_inputs(settings: Settings, parent: str, part: int | None = None) -> dict[str, Any]:
    """What determines the calibrator of the predictions with the key `parent`.

    `part` is the number of validation examples that it is fitted to, where these are not all.
    """
    fitted_to = {} if part is None else {"part": [settings.seed, part]}
    return {"stage": "calibrate", "parent": parent, "calibrator": identity(settings)["calibrator"], **fitted_to}


def rule_inputs(
    settings: Settings, parent: str, calibrator: str | None, outliers: Examples | None, held_out: Examples | None
) -> dict[str, Any]:
    """What determines the rule on the scores with the key `parent`, behind the calibrator with that key."""
    return {
        "stage": "rule",
        "parent": parent,
        "calibrator": calibrator,
        "rule": identity(settings)["rule"],
        "seed": settings.seed,
        "outliers": [fingerprint(outliers), fingerprint(held_out)],
    }


def validate_inputs(parent: str, members: int, bins: int) -> dict[str, Any]:
    """What determines the validation measures of the model with the key `parent`."""
    return {"stage": "validate", "parent": parent, "members": members, "bins": bins}


def score_inputs(settings: Settings, parent: str) -> dict[str, Any]:
    """What determines the outlier scores beside the predictions with the key `parent`."""
    counted = identity(settings)
    return {
        "stage": "score",
        "parent": parent,
        "outliers": counted["outliers"],
        "feature_layer": settings.backbone.feature_layer,
        "views": settings.selector.views,
        "augmentation": counted["augmentation"] if settings.selector.views > 1 else None,
        **({"entropy": True} if settings.selector.entropy else {}),
        **({"view_probabilities": True} if keeps_view_probabilities(settings) else {}),
    }


def keeps_view_probabilities(settings: Settings) -> bool:
    """Whether a calibrator will need the probabilities of the selector's augmented views."""
    return settings.calibrator.name != "none" and settings.selector.views > 1


def select_inputs(
    settings: Settings, parent: str, calibrator: str | None = None, outliers: Examples | None = None
) -> dict[str, Any]:
    """What determines the selector on the outlier scores with the key `parent`, and that of its `calibrator`."""
    chosen = {} if calibrator is None else {"calibrator": calibrator}
    fitted_to = {} if outliers is None else {"fitted_to": fingerprint(outliers)}
    return {"stage": "select", "parent": parent, "selector": identity(settings)["selector"], **chosen, **fitted_to}


def _optimizer(settings: Settings, stage: Literal["fit", "finetune"], scheme: Scheme) -> dict[str, Any]:
    return {**identity(settings)[stage], "clip_norm": getattr(settings, stage).clip_norm.of(scheme.family)}


def _loss(scheme: Scheme, settings: Settings) -> dict[str, Any]:
    counted, loss = identity(settings), dict[str, Any]()
    if scheme.bayesian:
        loss["posterior"] = _without(counted["posterior"], "members")
    if scheme.calibrated:
        weight = settings.calibration.weight.of(scheme.family)
        loss["calibration"] = {**_without(counted["calibration"], "grid", "max_accuracy_drop"), "weight": weight}
    return loss


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
