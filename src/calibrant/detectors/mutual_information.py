"""The mutual information of prediction and member: how far the members disagree."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.detectors.logit_detector import LogitDetector, entropy_of, mean_log_probabilities
from calibrant.slots import register


def mutual_information(logits: Any) -> Tensor:
    """Predictive entropy less the mean entropy of the members: how far they disagree, in [0, log K]; 0 for one member.

    >>> mutual_information(torch.tensor([[[40.0, 0.0]], [[0.0, 40.0]]]))  # two certain members of two minds: log 2
    tensor([0.6931])
    """
    return MutualInformationScore().score(logits=logits)


@register("detector", "mutual_information")
class MutualInformationScore(LogitDetector):
    """`mutual_information` (Houlsby et al., "Bayesian Active Learning for Classification", 2011).

    Its statistics are the C probabilities of a member and their entropy.
    """

    label = "mutual information"

    def score_logits(self, logits: Tensor) -> Tensor:
        """0: a single member agrees with itself."""
        return torch.zeros_like(logits[..., 0])

    def width(self, classes: int | None) -> int:
        """The probabilities and their entropy."""
        assert classes is not None
        return classes + 1

    def statistics(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The probabilities of a member and their entropy, (M, C + 1)."""
        assert logits is not None
        log_probabilities = logits.log_softmax(-1)
        return torch.cat([log_probabilities.exp(), entropy_of(log_probabilities)[:, None]], 1)

    def from_statistics(self, mean: Tensor) -> Tensor:
        """The entropy of the mean less the mean of the entropies."""
        whole: Tensor = torch.special.entr(mean[:, :-1]).sum(-1)
        return (whole - mean[:, -1]).clamp(min=0)

    def of_members(self, logits: Tensor) -> Tensor:
        """`mutual_information` of logits (K, M, C)."""
        own = entropy_of(logits.log_softmax(-1)).mean(0)
        return (entropy_of(mean_log_probabilities(logits)) - own).clamp(min=0)
