"""GEN: a generalized entropy of the prediction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.detectors.logit_detector import ProbabilityDetector
from calibrant.slots import register


@register("detector", "gen")
class GENScore(ProbabilityDetector):
    """G = sum_j p_j^gamma (1 - p_j)^gamma over the `top` largest probabilities p_j, of the mean over members.

    Liu, Lochman and Zach, "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection", CVPR 2023. A small
    `gamma` in (0, 1) amplifies small deviations from a certain prediction; the authors use 0.1, and the 100 largest of
    many classes, because the tail of the small probabilities is noise.

    >>> GENScore(gamma=0.5).score(logits=torch.zeros(1, 4))  # 4 sqrt(1/4 3/4)
    tensor([1.7321])
    """

    label = "GEN"

    def __init__(self, *, gamma: float = 0.1, top: int = 100) -> None:
        super().__init__()
        if not 0 < gamma < 1:
            raise InputError(f"gamma must lie in (0, 1), not {gamma}")
        self.gamma = float(gamma)
        self.top = int(checks.positive("top", top))

    def score_probabilities(self, probabilities: Tensor) -> Tensor:
        """G; 1 - p of the largest is the sum of the others, which keeps its digits where p is nearly 1."""
        ordered = probabilities.sort(-1, descending=True).values
        rest = torch.cat([ordered[:, 1:].sum(-1, keepdim=True), 1 - ordered[:, 1:]], -1)
        return (ordered * rest).clamp(min=0)[:, : self.top].pow(self.gamma).sum(-1)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"gamma": self.gamma, "top": self.top}
