"""The second stage (OCM): from the fitted model, with confidence minimization on D_u.

    minimize    CE + (beta / N) KL(q || p) + lambda E + gamma C(D_u)

ID examples and those of D_u go through the network in one forward pass, so that BatchNorm sees them together.
"""

from __future__ import annotations

from calibrant.training.batching import BatchSource, disjoint_part
from calibrant.training.fit import build_objective, regularizer_share
from calibrant.training.loop import EpochRow, Loop, Plan
from calibrant.training.task import StageTask


def finetune(task: StageTask) -> list[EpochRow]:
    """Train `task.model`, which must be fitted, in place; returns the metrics, a row an epoch."""
    scheme, settings, stage = task.scheme, task.settings, task.settings.finetune
    if task.data.uncertainty is None:
        raise ValueError(f"uncertainty data (D_u) is missing: {scheme} needs unlabelled outliers to fine-tune on")
    train, extra = disjoint_part(task.data.train, regularizer_share(scheme, settings), task.seed)
    source = BatchSource(
        train,
        stage.batch_size,
        task.fabric,
        seed=task.seed,
        samples=stage.examples_per_epoch,
        regularizer=None if extra is None else (extra, stage.batch_size),
        outliers=(task.data.uncertainty, stage.outlier_batch_size),
        augmentation=settings.augmentation,
    )
    plan = Plan(
        name=f"fine-tune {scheme}",
        settings=stage,
        objective=build_objective(
            scheme,
            settings,
            num_data=stage.kl_examples or len(train),
            beta_factor=stage.beta_factor,
            gamma=stage.gamma,
        ),
        batches=source,
        steps_per_epoch=len(source),
        examples_per_epoch=source.samples,
        seed=task.seed,
        draws=settings.posterior.draws,
        clip_norm=stage.clip_norm.of(scheme.family),
        gather=settings.calibration.gather and scheme.calibrated,
        validate=task.validate,
        on_epoch=task.on_epoch,
    )
    return Loop(task.model, plan, task.fabric, engine=settings.engine, saver=task.saver, progress=task.progress).run()
