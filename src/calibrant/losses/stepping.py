"""One step of somebody else's training loop: the terms of the objective for a batch and a batch of outliers."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.calling import call
from calibrant.adapters.outputs import logits_of
from calibrant.adapters.trees import join_rows, row_count, row_shape
from calibrant.adapters.unpacking import class_indices, split_batch
from calibrant.losses.objective import Objective
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.deterministic import as_posterior

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def posterior_in(network: nn.Module) -> Posterior:
    """The posterior that `network` is, behind what runs it in parallel; an ordinary network is a deterministic one."""
    return as_posterior(_bare(network))


def batch_logits(network: nn.Module, inputs: Any) -> Tensor:
    """Logits (B, C) at one draw of theta."""
    spreads = isinstance(_bare(network), Posterior)  # its own call finds out how the module takes the inputs
    return logits_of(network(inputs) if spreads else call(network, inputs), inputs)


def batch_terms(network: nn.Module, objective: Objective, batch: Any, outliers: Any = None) -> dict[str, Tensor]:
    """The terms of `objective`, and its "loss", for a labeled `batch` and, for OCM, a batch of unlabeled `outliers`.

    `network` is a posterior, such as `MeanField(network)`, or an ordinary network. Where one outlier has the shape of
    one ID example, both go through it together, so that BatchNorm sees them together, as in the paper; texts that are
    padded to other lengths go one after the other.

    >>> import torch
    >>> terms = batch_terms(nn.Linear(2, 3), Objective(10), (torch.zeros(4, 2), torch.tensor([0, 1, 2, 0])))
    >>> list(terms)
    ['cross_entropy', 'loss']
    """
    inputs, labels = split_batch(batch)
    if labels is None:
        raise InputError("the batch has no labels: it must be a pair (inputs, labels), or a mapping with labels")
    logits, unlabeled = _both(network, inputs, None if outliers is None else split_batch(outliers)[0])
    return objective(logits, class_indices(labels), kl=posterior_in(network).kl(), outlier_logits=unlabeled)


def _both(network: nn.Module, inputs: Any, outliers: Any) -> tuple[Tensor, Tensor | None]:
    """Logits (B, C), and (U, C) of the outliers."""
    if outliers is None:
        return batch_logits(network, inputs), None
    if row_shape(inputs) != row_shape(outliers):
        return batch_logits(network, inputs), batch_logits(network, outliers)
    own, others = batch_logits(network, join_rows([inputs, outliers])).tensor_split([row_count(inputs)])
    return own, others


def _bare(network: nn.Module) -> nn.Module:
    while isinstance(network, _PARALLEL):
        network = network.module
    return network
