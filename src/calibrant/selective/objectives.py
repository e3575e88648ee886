"""What the selector minimises: selective calibration with its log barrier, or selective classification."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor
from torch.nn import functional

from calibrant import checks
from calibrant.kernels import laplacian_quadratic_form, safe_sqrt


class SelectorExamples(NamedTuple):
    """Validation examples, (n,) each: confidence r, correctness c, and -log p(y | x) where it is needed."""

    confidence: Tensor
    correct: Tensor
    cross_entropy: Tensor | None = None


def selective_mmce(
    confidence: Tensor, correct: Tensor, gate: Tensor, width: float = 0.2, *, normalized: bool = False
) -> Tensor:
    """( sum_ij (c_i - r_i)(c_j - r_j) g_i g_j exp(-|r_i - r_j| / width) )^(1/2), all arguments (n,).

    With `normalized` the sum is divided by sum_ij g_i g_j; with g = 1 that is MMCE.

    >>> import torch
    >>> confidence, correct = torch.tensor([0.8, 0.8]), torch.tensor([1.0, 0.0])
    >>> selective_mmce(confidence, correct, torch.tensor([1.0, 0.5]))  # 0.2 - 0.8 / 2 = -0.2 at one place
    tensor(0.2000)
    """
    root = safe_sqrt(laplacian_quadratic_form(confidence, (correct - confidence) * gate, width))
    return root / gate.sum() if normalized else root


@dataclass(frozen=True)
class SelectiveCalibration:
    """( sum_ij e_i e_j g_i g_j k(r_i, r_j) )^(1/2) - eta sum_i log g_i, the log as a barrier that keeps coverage up.

    `variant="paper"`: e = c - r, sums as printed in the paper. `variant="authors_code"`: e = |c - r|^2, the root
    divided by sqrt(n) and the barrier by n, as in the code published with it.

    With `group=b` the double sum is replaced by its mean over all groups of b of the examples,
    b mean_i (e_i g_i)^2 + b (b - 1) mean_{i != j} e_i e_j g_i g_j k_ij, and the barrier is that of b examples:
    what minibatches of b minimise (but for the mean being inside the root), without sampling. `group=None` takes the
    examples as one group.
    """

    eta: float = 0.01
    width: float = 0.2
    variant: Literal["paper", "authors_code"] = "paper"
    group: int | None = None

    name: ClassVar[str] = "calibration"

    def __post_init__(self) -> None:
        if not self.eta >= 0:
            raise ValueError(f"eta must not be negative, not {self.eta}")
        checks.positive("width", self.width)
        if self.variant not in ("paper", "authors_code"):
            raise ValueError(f"variant must be 'paper' or 'authors_code', not {self.variant!r}")
        if self.group is not None and (self.variant != "paper" or self.group < 2):
            raise ValueError("group must be None or at least 2, and None with variant='authors_code'")

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The objective at the selector's logits (n,), g = sigmoid(logits)."""
        n = len(logits)
        error = examples.correct - examples.confidence
        barrier = -functional.logsigmoid(logits)
        if self.variant == "authors_code":
            form = laplacian_quadratic_form(examples.confidence, error.square() * logits.sigmoid(), self.width)
            return safe_sqrt(form) / math.sqrt(n) + self.eta * barrier.mean()
        weights = error * logits.sigmoid()
        form = laplacian_quadratic_form(examples.confidence, weights, self.width)
        size = self.size(n)
        if size < n:
            diagonal = weights.square().sum()
            form = size / n * diagonal + size * (size - 1) / (n * (n - 1)) * (form - diagonal)
        return safe_sqrt(form) + self.eta * size * barrier.mean()

    def size(self, n: int) -> int:
        """How many examples the objective of n examples sums over."""
        if self.variant == "authors_code":
            return 1
        return n if self.group is None else min(self.group, n)


@dataclass(frozen=True)
class SelectiveClassification:
    """sum_i g_i (-log p(y_i | x_i)) / sum_i g_i + penalty max(0, coverage - mean g)^2."""

    coverage: float = 0.5
    penalty: float = 32.0

    name: ClassVar[str] = "classification"

    def __post_init__(self) -> None:
        if not 0 <= self.coverage <= 1:
            raise ValueError(f"coverage must lie in [0, 1], not {self.coverage}")
        checks.positive("penalty", self.penalty)

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The objective at the selector's logits (n,), g = sigmoid(logits)."""
        if examples.cross_entropy is None:
            raise ValueError("cross_entropy, -log p(y | x), must be given for selective classification")
        # As a softmax over log g the quotient is defined even where every g underflows.
        weights = functional.logsigmoid(logits).softmax(0)
        shortfall = (self.coverage - logits.sigmoid().mean()).clamp(min=0)
        return (weights * examples.cross_entropy).sum() + self.penalty * shortfall.square()

    def size(self, n: int) -> int:
        """The objective is a mean already."""
        return 1


SelectorObjective = SelectiveCalibration | SelectiveClassification
OBJECTIVES: dict[str, type[SelectiveCalibration] | type[SelectiveClassification]] = {
    kind.name: kind for kind in (SelectiveCalibration, SelectiveClassification)
}


def make_objective(objective: str | SelectorObjective, settings: dict[str, Any]) -> SelectorObjective:
    """The objective of that name with those settings, or the given one."""
    if not isinstance(objective, str):
        return objective
    if objective not in OBJECTIVES:
        raise ValueError(f"objective must be one of {sorted(OBJECTIVES)}, not {objective!r}")
    return OBJECTIVES[objective](**settings)


def describe_objective(objective: SelectorObjective) -> dict[str, Any]:
    """Its name and settings; the inverse of `make_objective`."""
    return {"objective": objective.name, **asdict(objective)}
