"""The entropy of the prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.detectors.logit_detector import ProbabilityDetector, entropy_of, mean_log_probabilities
from calibrant.slots import register


def predictive_entropy(logits: Any) -> Tensor:
    """-sum_c p_c log p_c of the mean probabilities p, in nats, in [0, log C].

    >>> predictive_entropy(torch.zeros(1, 1, 4))  # log 4
    tensor([1.3863])
    """
    return EntropyScore().score(logits=logits)


@register("detector", "entropy")
class EntropyScore(ProbabilityDetector):
    """`predictive_entropy`.

    >>> EntropyScore().score(logits=torch.zeros(1, 4))
    tensor([1.3863])
    """

    label = "entropy"

    def score_probabilities(self, probabilities: Tensor) -> Tensor:
        """-sum_c p_c log p_c."""
        entropy: Tensor = torch.special.entr(probabilities).sum(-1)
        return entropy

    def of_members(self, logits: Tensor) -> Tensor:
        """`predictive_entropy` of logits (K, M, C)."""
        return entropy_of(mean_log_probabilities(logits))
