"""Selective calibration, the paper's objective: the calibration error of what is accepted, with a log barrier."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from calibrant import InputError, checks
from calibrant.kernels import laplacian_quadratic_form, safe_sqrt
from calibrant.selective.objectives.contract import Need, SelectorExamples, SelectorObjective
from calibrant.slots import register


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


@register("objective", "calibration")
@dataclass(frozen=True)
class SelectiveCalibration(SelectorObjective):
    """( sum_ij e_i e_j g_i g_j k(r_i, r_j) )^(1/2) - eta sum_i log g_i, the log as a barrier that keeps coverage up.

    `variant="paper"`: e = c - r, sums as printed in the paper. `variant="authors_code"`: e = |c - r|^2, the root
    divided by sqrt(n) and the barrier by n, as in the code published with it.

    With `group=b` the double sum is replaced by its mean over all groups of b of the examples,
    b mean_i (e_i g_i)^2 + b (b - 1) mean_{i != j} e_i e_j g_i g_j k_ij, and the barrier is that of b examples:
    what minibatches of b minimize (but for the mean being inside the root), without sampling. `group=None` takes the
    examples as one group.

    With `zeta` > 0, which is not in the paper, a second barrier rejects outliers: - zeta n mean_j log(1 - g_j) over m
    outliers j is added, n being the number of examples that the first one sums over. Per example, as it is minimized,
    the objective then is root / n - eta mean_i log g_i - zeta mean_j log(1 - g_j).
    """

    eta: float = 0.01
    width: float = 0.2
    variant: Literal["paper", "authors_code"] = "paper"
    group: int | None = None
    zeta: float = 0.0

    keeps_gate: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("eta", "zeta"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must not be negative or infinite, not {value}")
        checks.positive("width", self.width)
        if self.variant not in ("paper", "authors_code"):
            raise InputError(f"variant must be 'paper' or 'authors_code', not {self.variant!r}")
        if self.group is not None and (self.variant != "paper" or self.group < 2):
            raise InputError("group must be None or at least 2, and None with variant='authors_code'")

    @property
    def needs(self) -> tuple[Need, ...]:
        """Outliers, where they have a weight."""
        return ("outliers",) if self.zeta > 0 else ()

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The objective at the selector's logits (n,), g = sigmoid(logits)."""
        inliers = self._inliers(logits, examples)
        if self.zeta == 0:
            return inliers
        if examples.outliers is None:
            raise InputError("outliers must be given where zeta > 0: pass them to fit, or set zeta=0")
        return inliers + self.zeta * self.size(len(logits)) * functional.softplus(examples.outliers).mean()

    def _inliers(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The paper's objective, of ID examples alone."""
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
