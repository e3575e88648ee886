"""Soft AvUC (Karandikar et al. 2021): accuracy versus uncertainty with a soft split, differentiable everywhere."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.losses.avuc import entropy, mismatch
from calibrant.losses.inputs import predicted
from calibrant.slots import register


def soft_avuc(logits: Tensor, labels: Tensor, threshold: float = 0.5, *, temperature: float = 1.0) -> Tensor:
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)), with a soft decision t between certain and uncertain.

    t = sigmoid( log( v (1 - threshold) / ((1 - v) threshold) ) / temperature ), v = u / log C, where u is the entropy
    in nats. An example counts by t tanh u as uncertain and by (1 - t)(1 - tanh u) as certain; unlike in `avuc`, the
    confidence is no factor. With both defaults, those of the published code, t = v.

    >>> soft_avuc(torch.zeros(2, 2), torch.tensor([0, 1]))  # both uncertain, the first right, the second wrong: log 2
    tensor(0.6931)
    """
    log_probabilities, _, _, correct = predicted(logits, labels)
    _settings(threshold, temperature)
    classes = log_probabilities.shape[1]
    u = entropy(log_probabilities)
    smallest = torch.finfo(u.dtype).eps
    odds = torch.logit((u / math.log(classes)).clamp(smallest, 1 - smallest)) - math.log(threshold / (1 - threshold))
    t = torch.sigmoid(odds / temperature)
    return mismatch(correct, (1 - t) * (1 - u.tanh()), t * u.tanh())


def _settings(threshold: float, temperature: float) -> None:
    if not 0 < threshold < 1:
        raise InputError(f"threshold must lie between 0 and 1, not {threshold}")
    checks.positive("temperature", temperature)


@register("regularizer", "soft_avuc")
class SoftAvUC(nn.Module):
    """Soft AvUC, with soft thresholds on accuracy and uncertainty (Karandikar et al. 2021); see `soft_avuc`."""

    def __init__(self, threshold: float = 0.5, *, temperature: float = 1.0) -> None:
        super().__init__()
        _settings(threshold, temperature)
        self.threshold, self.temperature = threshold, temperature

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        return soft_avuc(logits, labels, self.threshold, temperature=self.temperature)
