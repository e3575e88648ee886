"""MaxLogit: the negative largest logit."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calibrant.detectors.logit_detector import LogitDetector
from calibrant.slots import register


def max_logit(logits: Any) -> Tensor:
    """-max_c z_c, averaged over members.

    >>> import torch
    >>> max_logit(torch.tensor([[[1.0, 3.0]], [[2.0, 0.0]]]))
    tensor([-2.5000])
    """
    return MaxLogitScore().score(logits=logits)


@register("detector", "max_logit")
class MaxLogitScore(LogitDetector):
    """`max_logit` (Hendrycks et al., "Scaling Out-of-Distribution Detection for Real-World Settings", ICML 2022)."""

    label = "MaxLogit"

    def score_logits(self, logits: Tensor) -> Tensor:
        """-max_c z_c."""
        return -logits.amax(-1)

    def of_members(self, logits: Tensor) -> Tensor:
        """The mean over members of logits (K, M, C)."""
        return self.score_logits(logits).mean(0)
