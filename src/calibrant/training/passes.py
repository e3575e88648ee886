"""Passes over the training data beside the steps, for posteriors that need them; alike on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from calibrant.adapters.trees import join_rows, move_to
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import Batches
from calibrant.training.batching import disjoint_part
from calibrant.training.randomness import derive
from calibrant.training.training_data import Examples, TrainingData


def training_part(data: TrainingData, scheme: Scheme, settings: Settings) -> tuple[Examples, Examples | None]:
    """What `scheme` is trained on, and the part that only its regularizer sees, if there is one."""
    return disjoint_part(data.train, regularizer_share(scheme, settings), settings.seed)


def training_examples(
    data: TrainingData, scheme: Scheme, settings: Settings, device: torch.device
) -> Iterator[tuple[Any, Any]]:
    """All inputs and labels that `scheme` is trained on, in order and not augmented."""
    train, _ = training_part(data, scheme, settings)
    for batch in Batches(train, settings.engine.predict_batch_size, shuffle=False).epoch(0):
        yield move_to(batch, device)


def training_inputs(data: TrainingData, scheme: Scheme, settings: Settings, device: torch.device) -> Iterator[Any]:
    """Inputs in batches as the stage of `scheme` trains on them, ID and outliers together, but not augmented."""
    train, _ = training_part(data, scheme, settings)
    stage = settings.finetune if scheme.ocm else settings.fit
    own = Batches(train, stage.batch_size, seed=derive(settings.seed, "statistics"))
    outliers = None
    if scheme.ocm:
        size = settings.finetune.outlier_batch_size
        unlike, seed = data.outliers_for(scheme), derive(settings.seed, "statistics of outliers")
        outliers = Batches(unlike, size, seed=seed, replacement=True, samples=len(own) * size).epoch(0)
    for inputs, _ in own.epoch(0):
        moved = move_to(inputs, device)
        yield moved if outliers is None else join_rows([moved, move_to(next(outliers)[0], device)])


def regularizer_share(scheme: Scheme, settings: Settings) -> float:
    """The part of the training data that only the regularizer sees."""
    return settings.calibration.share if scheme.calibrated else 0.0
