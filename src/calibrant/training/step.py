"""One training step's forward half: a batch, the network at a few draws of theta, and the terms of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.adapters.trees import join_rows
from calibrant.losses.objective import Objective
from calibrant.posteriors.deterministic import as_posterior
from calibrant.training.distributed import gather_with_gradients


@dataclass(frozen=True)
class Batch:
    """The examples of one step: ID with labels; the regularizer's own and those of D_u, where there are any.

    `weights` (B,) are those of the ID examples in the cross-entropy.
    """

    inputs: Any
    labels: Tensor
    regularizer_inputs: Any = None
    regularizer_labels: Tensor | None = None
    outliers: Any = None
    weights: Tensor | None = None

    def together(self) -> Any:
        """All inputs as one batch, for one forward pass: BatchNorm's statistics are shared."""
        parts = (self.inputs, self.regularizer_inputs, self.outliers)
        present = [part for part in parts if part is not None]
        return present[0] if len(present) == 1 else join_rows(present)


class Draws(nn.Module):
    """The posterior as a training step sees it: logits (S, B, C) at S draws of theta, and the KL or None.

    One module with one forward pass, because that is what DDP and `torch.compile` wrap. An ordinary network is its own
    deterministic posterior.
    """

    def __init__(self, model: nn.Module, draws: int = 1) -> None:
        super().__init__()
        self.posterior = as_posterior(model)
        self.draws = draws

    def forward(self, inputs: Any) -> tuple[Tensor, Tensor | None]:
        """Logits (S, B, C) and the KL."""
        logits = self.posterior.logits(inputs, self.draws)
        return logits, self.posterior.kl()


def loss_terms(
    network: nn.Module, objective: Objective, batch: Batch, fabric: Fabric, *, gather: bool = False
) -> dict[str, Tensor]:
    """The objective's terms, each averaged over the draws, and the accuracy on the ID examples.

    With `gather` the regularizer is evaluated on the examples of all ranks together.
    """
    logits, kl = network(batch.together())
    ends = [len(batch.labels), len(batch.labels) + len(_or_empty(batch.regularizer_labels, batch.labels))]
    own, extra, outliers = logits[:, : ends[0]], logits[:, ends[0] : ends[1]], logits[:, ends[1] :]
    extra_labels = batch.regularizer_labels
    if gather and extra_labels is None:
        extra, extra_labels = own, batch.labels
    if gather and extra_labels is not None:
        extra = gather_with_gradients(extra.transpose(0, 1), fabric).transpose(0, 1)
        extra_labels = gather_with_gradients(extra_labels, fabric)
    draws = [
        objective(
            own[s],
            batch.labels,
            kl=kl,
            outlier_logits=None if batch.outliers is None else outliers[s],
            regularizer_logits=None if extra_labels is None else extra[s],
            regularizer_labels=extra_labels,
            weights=batch.weights,
        )
        for s in range(len(logits))
    ]
    terms = draws[0]
    if len(draws) > 1:
        terms = {name: torch.stack([draw[name] for draw in draws]).mean() for name in terms}
    terms["accuracy"] = (own.detach().argmax(-1) == batch.labels).float().mean()
    return terms


def _or_empty(labels: Tensor | None, like: Tensor) -> Tensor:
    return like[:0] if labels is None else labels
