"""The first stage: cross-entropy or free energy, + lambda E.

minimize over theta or q    CE + (beta / N) KL(q || p) + lambda E
"""

from __future__ import annotations

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.losses import REGULARIZERS
from calibrant.losses.objective import Objective
from calibrant.training.batching import BatchSource, disjoint_part
from calibrant.training.loop import EpochRow, Loop, Plan
from calibrant.training.task import StageTask


def fit(task: StageTask) -> list[EpochRow]:
    """Train `task.model` in place; returns the metrics, a row an epoch."""
    scheme, settings = task.scheme, task.settings
    train, extra = disjoint_part(task.data.train, regularizer_share(scheme, settings), task.seed)
    source = BatchSource(
        train,
        settings.fit.batch_size,
        task.fabric,
        seed=task.seed,
        regularizer=None if extra is None else (extra, settings.fit.batch_size),
        augmentation=settings.augmentation,
    )
    plan = Plan(
        name=f"fit {scheme.base}",
        settings=settings.fit,
        objective=build_objective(scheme.base, settings, num_data=len(train)),
        batches=source,
        steps_per_epoch=len(source),
        examples_per_epoch=source.samples,
        seed=task.seed,
        draws=settings.posterior.draws,
        clip_norm=settings.fit.clip_norm.of(scheme.family),
        gather=settings.calibration.gather and scheme.calibrated,
        validate=task.validate,
        on_epoch=task.on_epoch,
    )
    return Loop(task.model, plan, task.fabric, engine=settings.engine, saver=task.saver, progress=task.progress).run()


def build_objective(
    scheme: Scheme, settings: Settings, *, num_data: int, beta_factor: float = 1.0, gamma: float = 0.0
) -> Objective:
    """The objective of `scheme`: lambda E only where it is calibrated."""
    calibration = settings.calibration
    weight = (calibration.weight.of(scheme.family) or 0.0) if scheme.calibrated else 0.0
    try:
        regularizer = REGULARIZERS[calibration.regularizer](**calibration.options) if scheme.calibrated else None
    except TypeError as error:
        raise ValueError(f"calibration.options do not fit {calibration.regularizer}: {error}") from None
    return Objective(
        num_data,
        beta=settings.posterior.beta * beta_factor,
        regularizer=regularizer,
        calibration_weight=weight,
        ocm_weight=gamma,
        replaces_cross_entropy=scheme.calibrated and calibration.replaces_cross_entropy,
    )


def regularizer_share(scheme: Scheme, settings: Settings) -> float:
    """The part of the training data that only the regularizer sees."""
    return settings.calibration.share if scheme.calibrated else 0.0
