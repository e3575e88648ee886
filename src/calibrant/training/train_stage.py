"""The two training stages: fit, and from the fitted model fine-tune with confidence minimization (OCM).

    fit          CE + (beta / N) KL(q || p) + lambda E
    fine-tune    CE + (beta / N) KL(q || p) + lambda E + gamma C(D_u)

When fine-tuning, ID examples and those of D_u go through the network in one forward pass, so that BatchNorm sees them
together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.losses.objective import Objective
from calibrant.slots import build
from calibrant.training.batching import BatchSource, disjoint_part
from calibrant.training.loop import EpochRow, Loop, Plan
from calibrant.training.passes import regularizer_share, training_examples, training_inputs
from calibrant.training.randomness import derive
from calibrant.training.snapshots import Saver
from calibrant.training.training_data import TrainingData
from calibrant.training.validation import validate


@dataclass(frozen=True)
class StageTask:
    """Train `model` in place for `scheme` on `data`; `saver` keeps checkpoints, `on_epoch` hears of the metrics."""

    model: nn.Module
    data: TrainingData
    scheme: Scheme
    settings: Settings
    fabric: Fabric
    seed: int = 0
    saver: Saver | None = None
    on_epoch: Callable[[list[dict[str, Any]]], None] | None = None
    progress: bool | None = None

    def validate(self) -> dict[str, float]:
        """Measures of the model as it is now on the validation data."""
        posterior, engine = self.settings.posterior, self.settings.engine
        return validate(
            self.model,
            self.data.validation,
            self.fabric,
            members=posterior.validation_members,
            seed=derive(self.seed, "validation") >> 1,
            batch_size=engine.predict_batch_size,
            bins=self.settings.report.bins,
            inputs=training_inputs(self.data, self.scheme, self.settings, self.fabric.device),
        )


def train_stage(task: StageTask) -> list[EpochRow]:
    """Train `task.model` in place, which must be fitted if its scheme has OCM; returns one row per epoch."""
    settings = task.settings
    fine = settings.finetune if task.scheme.ocm else None
    stage = fine or settings.fit
    train, extra = disjoint_part(task.data.train, regularizer_share(task.scheme, settings), task.seed)
    source = BatchSource(
        train,
        stage.batch_size,
        task.fabric,
        seed=task.seed,
        samples=fine.examples_per_epoch if fine else None,
        regularizer=None if extra is None else (extra, stage.batch_size),
        outliers=(task.data.outliers_for(task.scheme), fine.outlier_batch_size) if fine else None,
        augmentation=settings.augmentation,
        weights=_weights(task),
    )
    plan = Plan(
        name=f"fine-tune {task.scheme}" if task.scheme.ocm else f"fit {task.scheme.base}",
        settings=stage,
        objective=stage_objective(task.scheme, settings, len(train)),
        batches=source,
        steps_per_epoch=len(source),
        examples_per_epoch=source.samples,
        num_data=len(train),
        seed=task.seed,
        draws=settings.posterior.draws,
        clip_norm=stage.clip_norm.of(task.scheme.family),
        gather=settings.calibration.gather and task.scheme.calibrated,
        examples=lambda: training_examples(task.data, task.scheme, settings, task.fabric.device),
        validate=task.validate,
        on_epoch=task.on_epoch,
    )
    return Loop(task.model, plan, task.fabric, engine=settings.engine, saver=task.saver, progress=task.progress).run()


def _weights(task: StageTask) -> Tensor | None:
    """The weights of the examples that are trained on, without those that only the regularizer sees."""
    if task.data.weights is None:
        return None
    rows = ArrayData(task.data.weights[:, None])
    own = disjoint_part(rows, regularizer_share(task.scheme, task.settings), task.seed)[0]
    weights: Tensor = own.take(torch.arange(len(own)))[0][:, 0]
    return weights


def stage_objective(scheme: Scheme, settings: Settings, num_data: int) -> Objective:
    """The objective of the stage that trains `scheme` on `num_data` examples: lambda E only where it is calibrated."""
    fine, calibration = settings.finetune if scheme.ocm else None, settings.calibration
    regularizer = build("regularizer", calibration.regularizer, calibration.options) if scheme.calibrated else None
    return Objective(
        (fine.kl_examples if fine else None) or num_data,
        beta=settings.posterior.beta * (fine.beta_factor if fine else 1.0),
        regularizer=regularizer,
        calibration_weight=(calibration.weight.of(scheme.family) or 0.0) if scheme.calibrated else 0.0,
        ocm_weight=fine.gamma if fine else 0.0,
        replaces_cross_entropy=scheme.calibrated and calibration.replaces_cross_entropy,
    )
