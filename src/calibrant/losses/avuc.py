"""Accuracy versus uncertainty calibration (Krishnan and Tickoo 2020): be certain where right, uncertain where wrong."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.losses.inputs import predicted
from calibrant.slots import register

_SMALLEST = 1e-5


def avuc(logits: Tensor, labels: Tensor, threshold: float | None = None) -> Tensor:
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)), with counts of accurate or inaccurate, certain or uncertain examples.

    An example is certain if its entropy u (in nats) is at most the threshold. Each counts by r (1 - tanh u) in n_AC,
    r tanh u in n_AU, (1 - r)(1 - tanh u) in n_IC and (1 - r) tanh u in n_IU, where r is the confidence.

    Without a `threshold`, it is the middle between the mean entropies of the accurate and of the inaccurate examples of
    the batch (of one group, if the other is empty), a constant for the gradient; the original takes that middle over
    a data set in the first epochs and keeps it.

    >>> avuc(torch.tensor([[3.0, 0.0], [0.2, 0.0]]), torch.tensor([0, 1]), threshold=0.5)  # nothing in n_AU, n_IC
    tensor(0.)
    """
    log_probabilities, _, confidence, correct = predicted(logits, labels)
    _number(threshold)
    u = entropy(log_probabilities)
    limit = _middle(u.detach(), correct) if threshold is None else threshold
    weight = torch.where(correct > 0, confidence, 1 - confidence)
    certain = torch.where(u <= limit, weight * (1 - u.tanh()), 0)
    uncertain = torch.where(u > limit, weight * u.tanh(), 0)
    return mismatch(correct, certain, uncertain)


def entropy(log_probabilities: Tensor) -> Tensor:
    """-sum_k p_k log p_k in nats: (B, C) to (B,)."""
    return -(log_probabilities.exp() * log_probabilities).sum(1)


def mismatch(correct: Tensor, certain: Tensor, uncertain: Tensor) -> Tensor:
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)) of per-example counts (B,); a denominator below 1e-5 counts 1e-5."""
    wrong = 1 - correct
    bad = (correct * uncertain + wrong * certain).sum()
    good = (correct * certain + wrong * uncertain).sum()
    return torch.log1p(bad / good.clamp(min=_SMALLEST))


def _number(threshold: float | None) -> None:
    if threshold is not None and threshold != threshold:
        raise InputError("threshold must be a number of nats, or None for the middle of the batch, not NaN")


def _middle(u: Tensor, correct: Tensor) -> Tensor:
    groups = torch.stack([correct, 1 - correct])
    sizes = groups.sum(1)
    means = (groups * u).sum(1) / sizes.clamp(min=1)
    return means.sum() / (sizes > 0).sum()


@register("regularizer", "avuc")
class AvUC(nn.Module):
    """Accuracy versus uncertainty calibration, AvUC (Krishnan & Tickoo 2020); see `avuc`."""

    def __init__(self, threshold: float | None = None) -> None:
        super().__init__()
        _number(threshold)
        self.threshold = threshold

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        return avuc(logits, labels, self.threshold)
