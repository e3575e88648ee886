"""What detectors of logits share: they need no fit, and take logits (K, M, C) of K members at once."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.adapters.outputs import as_classes
from calibrant.detectors.base import Detector


class LogitDetector(Detector):
    """Base of every detector of logits alone; a new one defines `score_logits`, and is averaged over the members."""

    reads = ("logits",)
    needs_fit = False

    @abstractmethod
    def score_logits(self, logits: Tensor) -> Tensor:
        """Scores (..., M) of logits (..., M, C), by tensor operations that `torch.export` can trace."""

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The scores of one member's logits."""
        assert logits is not None
        return self.score_logits(logits)

    def score(self, features: Any = None, logits: Any = None) -> Tensor:
        """Scores (M,) of logits (K, M, C) of K members, or (M, C) of one network."""
        return self.of_members(members_first(self._given("logits", logits)))

    def of_members(self, logits: Tensor) -> Tensor:
        """Scores (M,) of logits (K, M, C), without checks."""
        return self.from_statistics(torch.stack([self.statistics(None, member) for member in logits]).mean(0))

    def score_rows(self, logits: Tensor) -> Tensor:
        """`of_members`, NaN for inputs whose logits are not all finite; the others keep theirs."""
        finite = logits.isfinite().all(-1).all(0)
        return torch.where(finite, self.of_members(torch.where(finite[:, None], logits, 0.0)), torch.nan)


class ProbabilityDetector(LogitDetector):
    """A detector of the mean over members of the probabilities; a new one defines `score_probabilities`."""

    @abstractmethod
    def score_probabilities(self, probabilities: Tensor) -> Tensor:
        """Scores (M,) of probabilities (M, C)."""

    def score_logits(self, logits: Tensor) -> Tensor:
        """The scores of the probabilities of one member."""
        return self.score_probabilities(logits.softmax(-1))

    def width(self, classes: int | None) -> int:
        """The probabilities of all classes are averaged."""
        assert classes is not None
        return classes

    def statistics(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The probabilities of one member, (M, C)."""
        assert logits is not None
        return logits.softmax(-1)

    def from_statistics(self, mean: Tensor) -> Tensor:
        """The scores of the mean probabilities."""
        return self.score_probabilities(mean)


def members_first(logits: Any) -> Tensor:
    """Checked logits (K, B, C) of K members; (B, C) of one network gets K = 1, and one logit is two classes."""
    value = checks.floating("logits", logits)
    if value.dim() not in (2, 3):
        raise InputError(f"logits must have shape (K, B, C) or (B, C), not {tuple(value.shape)}")
    if checks.values_visible(value):
        checks.finite("logits", value)
    value = as_classes(value)
    return value if value.dim() == 3 else value[None]


def mean_log_probabilities(members: Tensor) -> Tensor:
    """The logarithm of the mean over members of softmax, (B, C), of logits (K, B, C)."""
    return members.log_softmax(-1).logsumexp(0) - math.log(len(members))


def entropy_of(log_probabilities: Tensor) -> Tensor:
    """-sum_c p_c log p_c (...,) of log probabilities (..., C)."""
    finite = log_probabilities.clamp_min(torch.finfo(log_probabilities.dtype).min)  # 0 log 0 = 0
    return -(log_probabilities.exp() * finite).sum(-1)
