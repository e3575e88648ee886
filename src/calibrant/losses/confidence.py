"""Confidence minimization on outliers (OCM): the cross-entropy between the uniform distribution and the prediction."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from calibrant import checks
from calibrant.adapters.outputs import as_classes
from calibrant.losses.inputs import full_precision


def confidence_minimization(logits: Any) -> Tensor:
    """-(1 / B) sum_i (1 / C) sum_k log p_ik: logits (B, C) to a scalar, at least log C; (B, 1) are two classes.

    >>> import torch
    >>> confidence_minimization(torch.zeros(3, 4))  # log 4: already uniform
    tensor(1.3863)
    """
    scores = as_classes(checks.floating("logits", logits, dims=2))
    checks.not_diverged(scores)
    return -F.log_softmax(full_precision(scores), dim=1).mean()


class ConfidenceMinimization(nn.Module):
    """`confidence_minimization` as a module: it takes logits only, outliers have no labels."""

    def forward(self, logits: Tensor) -> Tensor:
        """The term of one batch, a scalar."""
        return confidence_minimization(logits)
