"""What an ensemble says about a set of inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor


@dataclass(frozen=True)
class Predictions:
    """Logits (K, N, C) of K members on N inputs, with their features (K, N, D) and the labels (N,) where there are any.

    The probabilities are those of the ensemble, p(y | x) = 1/K sum_k softmax(logits_k)_y; confidence, decision and
    correctness are read off them.
    """

    logits: Tensor
    features: Tensor | None = None
    labels: Tensor | None = None

    @cached_property
    def probabilities(self) -> Tensor:
        """(N, C): the mean of the members' probabilities."""
        total = self.logits[0].softmax(-1)
        for member in self.logits[1:]:
            total += member.softmax(-1)
        return total / len(self.logits)

    @cached_property
    def confidence(self) -> Tensor:
        """(N,): the largest probability; rounding cannot lift it above 1."""
        return self.probabilities.amax(-1).clamp(max=1.0)

    @cached_property
    def predicted(self) -> Tensor:
        """(N,): the class with the largest probability."""
        return self.probabilities.argmax(-1)

    @cached_property
    def correct(self) -> Tensor:
        """(N,) bool: whether the decision equals the label."""
        if self.labels is None:
            raise ValueError("labels are missing: the data that was predicted has none")
        return self.predicted == self.labels

    def __len__(self) -> int:
        return self.logits.shape[1]
