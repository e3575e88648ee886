"""The objective in a LightningModule: cross-entropy, KL, regularizer and OCM, its terms in whatever logger is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from calibrant.adapters.trees import move_to, row_count
from calibrant.adapters.unpacking import split_batch
from calibrant.losses.objective import Objective
from calibrant.losses.stepping import batch_terms, posterior_in
from calibrant.posteriors.base import EpochEnd


class ObjectiveStep:
    """Mixin that gives a `LightningModule` its training step; it stands before the base class.

    The module sets two attributes: `network`, a posterior such as `MeanField(network)` or an ordinary network, and
    `objective`. For OCM it is fitted on two loaders by name: `trainer.fit(module, {"train": loader, "outliers":
    outlier_loader})`. Every term is logged as `train_NAME`, averaged over the epoch. The hooks of the posterior are
    called; the optimizer is what `configure_optimizers` returns.
    """

    network: Any
    objective: Objective
    trainer: Any

    def training_step(self, batch: Any, batch_idx: int = 0) -> Tensor:
        """The loss of one batch; its terms are logged."""
        own, outliers = _parts(batch)
        terms = batch_terms(self.network, self.objective, own, outliers)
        shown = {f"train_{name}": value.detach() for name, value in terms.items()}
        size = row_count(split_batch(own)[0])
        self.log_dict(shown, on_step=False, on_epoch=True, batch_size=size)  # type: ignore[attr-defined]
        return terms["loss"]

    def on_train_start(self) -> None:
        """Call the posterior's hooks: one now, unless training is resumed, and one after every step of an optimizer."""
        if self.trainer.global_step == 0:
            posterior_in(self.network).begin(self.trainer.estimated_stepping_batches)
        for optimizer in self.trainer.optimizers:
            optimizer.register_step_post_hook(lambda *_: posterior_in(self.network).after_step())

    def on_train_epoch_end(self) -> None:
        """Call the posterior's hook after every epoch."""
        end = EpochEnd(self.trainer.current_epoch + 1, self.trainer.max_epochs, self._examples)
        posterior_in(self.network).after_epoch(end)

    def on_train_end(self) -> None:
        """Call the posterior's hook after the last epoch."""
        posterior_in(self.network).finish(self._examples())

    def _examples(self) -> Iterator[tuple[Any, Tensor]]:
        for batch in self.trainer.train_dataloader:
            yield split_batch(move_to(_parts(batch)[0], self.device))  # type: ignore[attr-defined]


def _parts(batch: Any) -> tuple[Any, Any]:
    """The labeled batch, and that of outliers or None."""
    paired = isinstance(batch, Mapping) and "train" in batch
    return (batch["train"], batch.get("outliers")) if paired else (batch, None)
