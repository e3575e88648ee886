"""The training loop of both stages: forward, backward, clip, step; and what makes it stop and go on at any point."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.config.groups import EngineSettings, OptimizerSettings
from calibrant.files import DivergedError
from calibrant.losses.objective import Objective
from calibrant.posteriors.base import EpochEnd
from calibrant.posteriors.deterministic import as_posterior
from calibrant.training.distributed import share_buffers, sum_over_ranks
from calibrant.training.interrupts import deferred_stop
from calibrant.training.optimizers import build_optimizer, clip_gradients, rate_factor, set_rate
from calibrant.training.progress import TrainingBar
from calibrant.training.randomness import derive, seeded
from calibrant.training.snapshots import Saver, Snapshot
from calibrant.training.step import Batch, Draws, loss_terms

EpochRow = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What distinguishes one training stage from another.

    `batches(epoch, start)` yields this rank's batches of `epoch` from step `start` on, and must depend on nothing
    else; `num_data` is the number of training examples, also where the KL term is divided by another number;
    `examples()` yields all of them; `validate()` measures the model after an epoch; `on_epoch(rows)` is
    told all rows of metrics so far.
    """

    name: str
    settings: OptimizerSettings
    objective: Objective
    batches: Callable[[int, int], Iterator[Batch]]
    steps_per_epoch: int
    examples_per_epoch: int
    num_data: int
    seed: int
    draws: int = 1
    clip_norm: float | None = None
    gather: bool = False
    examples: Callable[[], Iterable[Any]] = tuple
    validate: Callable[[], dict[str, float]] | None = None
    on_epoch: Callable[[list[EpochRow]], None] | None = None


class Loop:
    """Trains `model` in place as `plan` says; `saver` keeps checkpoints, None keeps none."""

    def __init__(
        self,
        model: nn.Module,
        plan: Plan,
        fabric: Fabric,
        *,
        engine: EngineSettings,
        saver: Saver | None = None,
        progress: bool | None = None,
    ) -> None:
        self.model, self.plan, self.fabric, self.saver, self.progress = model, plan, fabric, saver, progress
        self.posterior = as_posterior(model)
        objective, steps = plan.objective, plan.settings.epochs * plan.steps_per_epoch
        self.optimizer = build_optimizer(
            self.posterior, plan.settings, num_data=plan.num_data, beta=objective.beta, steps=steps
        )
        self.posterior.begin(plan.settings.epochs * plan.steps_per_epoch)
        network: Any = Draws(self.posterior, plan.draws)
        if engine.compile:
            # The last batch of an epoch is smaller: two static graphs are faster than one for any size.
            network = torch.compile(network, dynamic=False)
        self.network, self.wrapped_optimizer = fabric.setup(network, self.optimizer)
        self.epoch, self.step, self.seconds = 0, 0, 0.0
        self.sums: dict[str, Tensor] = {}
        self.rows: list[EpochRow] = []

    def run(self) -> list[EpochRow]:
        """Train to the end, from the newest checkpoint if there is one; returns the metrics, one row per epoch."""
        settings, per_epoch = self.plan.settings, self.plan.steps_per_epoch
        seed = derive(self.plan.seed, self.plan.name, "theta", self.fabric.global_rank)
        with torch.enable_grad(), seeded(seed, self.fabric.device):
            self._resume()
            done = self.epoch * per_epoch + self.step
            bar = TrainingBar(self.plan.name, settings.epochs * per_epoch, done=done, enabled=self._bar_enabled())
            with bar, deferred_stop(self.saver is not None and self.fabric.world_size == 1) as stop:
                while self.epoch < settings.epochs:
                    self.network.train()
                    for batch in self.plan.batches(self.epoch, self.step):
                        self._update(batch)
                        bar.advance(self._means)
                        if self.saver is not None and self.saver.due(self.fabric, stop.signal is not None):
                            self._save()
                        if stop.signal is not None:
                            stop.obey()
                    self._close_epoch()
        self.model.eval()
        return self.rows or [self._untrained()]

    def _update(self, batch: Batch) -> None:
        plan, started = self.plan, time.perf_counter()
        factor = rate_factor(plan.settings, self.epoch, self.step, plan.steps_per_epoch, plan.examples_per_epoch)
        set_rate(self.optimizer, factor)
        terms = loss_terms(self.network, plan.objective, batch, self.fabric, gather=plan.gather)
        self.fabric.backward(terms["loss"])
        if plan.clip_norm is not None:
            clip_gradients(self.posterior, self.optimizer, plan.clip_norm, self.fabric)
        self.wrapped_optimizer.step()
        self.wrapped_optimizer.zero_grad()
        self.posterior.after_step()
        for name, value in terms.items():
            value = value.detach()
            self.sums[name] = self.sums[name] + value if name in self.sums else value
        self.step += 1
        self.seconds += time.perf_counter() - started

    def _close_epoch(self) -> None:
        share_buffers(self.model, self.fabric)
        self.posterior.after_epoch(EpochEnd(self.epoch + 1, self.plan.settings.epochs, self._examples))
        share_buffers(self.model, self.fabric)
        row: EpochRow = {"epoch": self.epoch + 1, "rate": self.optimizer.param_groups[0]["lr"]}
        for name, total in self.sums.items():
            mean = sum_over_ranks(total.clone(), self.fabric) / (self.step * self.fabric.world_size)
            row[f"train_{name}"] = float(mean)
        if not math.isfinite(row["train_loss"]):
            raise DivergedError(
                f"training diverged in epoch {self.epoch + 1} of {self.plan.name} (the loss is {row['train_loss']}):"
                " lower the rate or set clip_norm, and start again"
            )
        last, every = self.epoch + 1 == self.plan.settings.epochs, self.plan.settings.validate_every
        if last:
            self._finish()
        if self.plan.validate is not None and (last or (every and (self.epoch + 1) % every == 0)):
            row.update({f"validation_{name}": value for name, value in self.plan.validate().items()})
        self.rows.append(row)
        self.epoch, self.step, self.sums = self.epoch + 1, 0, {}
        if self.plan.on_epoch is not None and self.fabric.is_global_zero:
            self.plan.on_epoch(self.rows)

    def _untrained(self) -> EpochRow:
        """The metrics of a network that stays as it is."""
        self._finish()
        found = {} if self.plan.validate is None else self.plan.validate()
        return {"epoch": 0, **{f"validation_{name}": value for name, value in found.items()}}

    def _finish(self) -> None:
        self.posterior.finish(self.plan.examples())
        share_buffers(self.model, self.fabric)

    def _examples(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of this epoch, once more."""
        return ((batch.inputs, batch.labels) for batch in self.plan.batches(self.epoch, 0))

    def _means(self) -> dict[str, float]:
        return {name: float(total) / max(1, self.step) for name, total in self.sums.items()}

    def _bar_enabled(self) -> bool | None:
        return self.progress if self.fabric.is_global_zero else False

    def _save(self) -> None:
        assert self.saver is not None
        values = {"epoch": self.epoch, "step": self.step, "rows": self.rows, "seconds": self.seconds}
        self.saver.save(Snapshot(self.model, self.optimizer, self.sums, values), self.fabric)

    def _resume(self) -> None:
        if self.saver is None:
            return
        snapshot = self.saver.load(self.model, self.optimizer, self.fabric)
        if snapshot is not None:
            self.sums, values = snapshot.sums, snapshot.values
            self.epoch, self.step, self.rows, self.seconds = (values[n] for n in ("epoch", "step", "rows", "seconds"))
