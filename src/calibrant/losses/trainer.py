"""The objective in `transformers.Trainer`: cross-entropy, KL, regularizer and OCM, its terms in `Trainer.log`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.trees import move_to
from calibrant.adapters.unpacking import split_batch
from calibrant.losses.objective import Objective
from calibrant.losses.stepping import batch_logits, batch_terms, posterior_in
from calibrant.posteriors.base import Posterior


class ObjectiveLoss:
    """Mixin that gives a `transformers.Trainer` its loss: `class Mine(ObjectiveLoss, Trainer): ...`.

    `model` is a posterior, such as `MeanField(model)`, or an ordinary model; `objective` says which terms there are;
    `outliers` yields batches of unlabeled outliers for OCM, again and again. What `Trainer` logs has the mean of every
    term since it logged last. While evaluating, the loss is the cross-entropy at one draw of theta.
    """

    loss_is_scaled_for_ga = False  # the loss is a mean over the batch

    def __init__(self, *args: Any, objective: Objective, outliers: Iterable[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False  # what said so before `loss_is_scaled_for_ga`
        self.objective, self._outliers = objective, None if outliers is None else _endless(outliers)
        self._sums: dict[str, Tensor] = {}
        self._steps = 0
        family = type(posterior_in(self.model))  # type: ignore[attr-defined]
        if any(getattr(family, hook) is not getattr(Posterior, hook) for hook in ("after_step", "after_epoch")):
            raise InputError(f"{family.__name__} has hooks, which Trainer does not call: use Lightning")

    def compute_loss(self, model: nn.Module, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        """The objective while training, the cross-entropy while evaluating; with the logits if `return_outputs`."""
        if not model.training:
            logits = batch_logits(model, inputs)
            terms = Objective(1)(logits, split_batch(inputs)[1])
            return (terms["loss"], {"logits": logits}) if return_outputs else terms["loss"]
        outliers = None if self._outliers is None else move_to(next(self._outliers), next(model.parameters()).device)
        terms = batch_terms(model, self.objective, inputs, outliers)
        self._sums = {name: self._sums.get(name, 0) + value.detach() for name, value in terms.items()}
        self._steps += 1
        return (terms["loss"], {}) if return_outputs else terms["loss"]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the terms beside what `Trainer` logs."""
        if "loss" in logs and self._steps:
            logs |= {f"train_{name}": float(total) / self._steps for name, total in self._sums.items()}
            self._sums, self._steps = {}, 0
        super().log(logs, *args, **kwargs)  # type: ignore[misc]


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from batches
