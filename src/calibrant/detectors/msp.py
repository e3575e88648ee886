"""The maximum softmax probability, as a score of outliers: 1 - confidence."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calibrant.detectors.logit_detector import ProbabilityDetector, mean_log_probabilities
from calibrant.slots import register


def msp(logits: Any) -> Tensor:
    """1 - the maximum softmax probability, 1 - max_c p_c with p the mean over members: 1 - confidence, in [0, 1].

    >>> import torch
    >>> msp(torch.zeros(1, 1, 4))
    tensor([0.7500])
    """
    return MSPScore().score(logits=logits)


@register("detector", "msp")
class MSPScore(ProbabilityDetector):
    """`msp` (Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and OOD Examples", ICLR 2017).

    >>> import torch
    >>> MSPScore().score(logits=torch.zeros(1, 4))
    tensor([0.7500])
    """

    label = "confidence"

    def score_probabilities(self, probabilities: Tensor) -> Tensor:
        """1 - max_c p_c."""
        return 1 - probabilities.amax(-1)

    def of_members(self, logits: Tensor) -> Tensor:
        """`msp` of logits (K, M, C)."""
        return 1 - mean_log_probabilities(logits).exp().amax(-1)
