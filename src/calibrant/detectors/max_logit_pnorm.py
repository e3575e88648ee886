"""MaxLogit-pNorm: the largest logit in relation to the size of all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.detectors.logit_detector import LogitDetector
from calibrant.slots import register


@register("detector", "max_logit_pnorm")
class MaxLogitPNormScore(LogitDetector):
    """-max_c u_c / (sum_c |u_c|^p)^(1/p), where u_c = z_c - mean(z) are the centered logits; the mean over members.

    Cattelan and Silva, "How to Fix a Broken Confidence Estimator: Evaluating Post-hoc Methods for Selective
    Classification with Deep Neural Networks", UAI 2024. They choose `p` on held-out data; larger ones weigh the
    largest logits more. Logits that are all equal score 0, the largest value.

    >>> MaxLogitPNormScore(p=2).score(logits=torch.tensor([[3.0, 0.0, 0.0]]))  # -2 / sqrt(6)
    tensor([-0.8165])
    """

    label = "MaxLogit-pNorm"

    def __init__(self, *, p: float = 5.0) -> None:
        super().__init__()
        self.p = checks.positive("p", p)

    def score_logits(self, logits: Tensor) -> Tensor:
        """The negative ratio; the logits are divided by the largest of them first, so that no power overflows."""
        centered = logits - logits.mean(-1, keepdim=True)
        tiny = torch.finfo(logits.dtype).tiny
        relative = centered / centered.abs().amax(-1, keepdim=True).clamp(min=tiny)
        norm = relative.abs().pow(self.p).sum(-1).pow(1 / self.p)
        return -relative.amax(-1) / norm.clamp(min=tiny)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"p": self.p}
