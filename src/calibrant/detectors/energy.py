"""The free energy of the logits."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calibrant import checks
from calibrant.detectors.logit_detector import LogitDetector
from calibrant.slots import register


def energy(logits: Any, temperature: float = 1.0) -> Tensor:
    """The free energy -T log sum_c exp(z_c / T) at `temperature` T, averaged over members.

    >>> import torch
    >>> energy(torch.zeros(1, 1, 4))  # -log 4
    tensor([-1.3863])
    """
    return EnergyScore(temperature=temperature).score(logits=logits)


@register("detector", "energy")
class EnergyScore(LogitDetector):
    """`energy` (Liu et al., "Energy-based Out-of-distribution Detection", NeurIPS 2020)."""

    label = "Energy"

    def __init__(self, *, temperature: float = 1.0) -> None:
        super().__init__()
        self.temperature = checks.temperature("temperature", temperature)

    def score_logits(self, logits: Tensor) -> Tensor:
        """-T log sum_c exp(z_c / T)."""
        return -self.temperature * (logits / self.temperature).logsumexp(-1)

    def of_members(self, logits: Tensor) -> Tensor:
        """The mean over members of logits (K, M, C)."""
        return self.score_logits(logits).mean(0)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"temperature": self.temperature}
