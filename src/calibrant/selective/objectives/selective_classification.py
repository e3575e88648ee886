"""Selective classification: the cross-entropy of what is accepted, with a penalty on too small a coverage."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from calibrant import InputError, checks
from calibrant.selective.objectives.contract import Need, SelectorExamples, SelectorObjective
from calibrant.slots import register


@register("objective", "classification")
@dataclass(frozen=True)
class SelectiveClassification(SelectorObjective):
    """sum_i g_i (-log p(y_i | x_i)) / sum_i g_i + penalty max(0, coverage - mean g)^2."""

    coverage: float = 0.5
    penalty: float = 32.0

    def __post_init__(self) -> None:
        if not 0 <= self.coverage <= 1:
            raise InputError(f"coverage must lie in [0, 1], not {self.coverage}")
        checks.positive("penalty", self.penalty)

    @property
    def needs(self) -> tuple[Need, ...]:
        """-log p(y | x)."""
        return ("cross_entropy",)

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The objective at the selector's logits (n,), g = sigmoid(logits)."""
        if examples.cross_entropy is None:
            raise InputError("cross_entropy, -log p(y | x), must be given for selective classification")
        # As a softmax over log g the quotient is defined even where every g underflows.
        weights = functional.logsigmoid(logits).softmax(0)
        shortfall = (self.coverage - logits.sigmoid().mean()).clamp(min=0)
        return (weights * examples.cross_entropy).sum() + self.penalty * shortfall.square()
