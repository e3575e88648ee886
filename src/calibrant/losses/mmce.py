"""Maximum mean calibration error, plain and weighted (Kumar, Sarawagi and Jain 2018), with the Laplacian kernel."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.kernels import laplacian_quadratic_form, safe_sqrt
from calibrant.losses.inputs import confidence_and_correct, predicted
from calibrant.slots import register

Normalization = Literal["paper", "authors_code"]


def mmce(confidence: Any, correct: Any, width: float = 0.4, *, squared: bool = False) -> Tensor:
    """( sum_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / width) / n^2 )^(1/2); without the root if `squared`.

    `confidence` r and `correct` c have shape (n,). Exact in O(n log n); the gradient of the root is 0 at 0.

    >>> mmce(torch.tensor([0.5, 0.9]), torch.tensor([1, 0]))
    tensor(0.4269)
    """
    r, c = confidence_and_correct(confidence, correct)
    form = laplacian_quadratic_form(r, (c - r) / len(r), width)
    return form if squared else safe_sqrt(form)


def weighted_mmce(
    confidence: Any,
    correct: Any,
    width: float = 0.4,
    *,
    squared: bool = False,
    normalization: Normalization = "paper",
) -> Tensor:
    """MMCE with the n_c correct and the n - n_c wrong examples each averaged on their own.

    ( sum_ij a_i a_j exp(-|r_i - r_j| / width) )^(1/2), with a_i = (1 - r_i) / n_c where c_i = 1 and
    a_i = -r_i / (n - n_c) where c_i = 0. Without a member, a group has no terms: the other group's remain.

    `normalization="authors_code"` is the variant of the published code: its averages are divided by the squared group
    sizes once more, a_i = (1 - r_i) / n_c^2 and -r_i / (n - n_c)^2, and the value is 0 where a group is empty.

    >>> confidence, correct = torch.tensor([0.6, 0.9, 0.7]), torch.tensor([1, 1, 0])
    >>> weighted_mmce(confidence, correct)
    tensor(0.5305)
    >>> weighted_mmce(confidence, correct, normalization="authors_code")
    tensor(0.6105)
    """
    r, c = confidence_and_correct(confidence, correct)
    _known(normalization)
    right, wrong = c.sum(), (1 - c).sum()
    power = 1 if normalization == "paper" else 2
    weights = torch.where(c > 0, (1 - r) / right.clamp(min=1) ** power, -r / wrong.clamp(min=1) ** power)
    if normalization == "authors_code":
        weights = weights * ((right > 0) & (wrong > 0))
    form = laplacian_quadratic_form(r, weights, width)
    return form if squared else safe_sqrt(form)


def _known(normalization: str) -> None:
    if normalization not in ("paper", "authors_code"):
        raise InputError(f"normalization must be 'paper' or 'authors_code', not {normalization!r}")


@register("regularizer", "mmce")
class MMCE(nn.Module):
    """Maximum mean calibration error, MMCE (Kumar et al. 2018); the confidence is the largest probability. See `mmce`.

    >>> MMCE()(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    tensor(0.3274)
    """

    def __init__(self, width: float = 0.4, *, squared: bool = False) -> None:
        super().__init__()
        checks.positive("width", width)
        self.width, self.squared = width, squared

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        batch = predicted(logits, labels)
        return mmce(batch.confidence, batch.correct, self.width, squared=self.squared)


@register("regularizer", "weighted_mmce")
class WeightedMMCE(nn.Module):
    """MMCE with right and wrong answers weighted separately, the paper's regularizer; see `weighted_mmce`.

    >>> WeightedMMCE()(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    tensor(0.6548)
    """

    def __init__(self, width: float = 0.4, *, squared: bool = False, normalization: Normalization = "paper") -> None:
        super().__init__()
        checks.positive("width", width)
        _known(normalization)
        self.width, self.squared, self.normalization = width, squared, normalization

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        batch = predicted(logits, labels)
        return weighted_mmce(
            batch.confidence, batch.correct, self.width, squared=self.squared, normalization=self.normalization
        )


@register("regularizer", "weighted_mmce_code")
def weighted_mmce_code(width: float = 0.4, *, squared: bool = False) -> WeightedMMCE:
    """Weighted MMCE as the authors' code has it, normalized twice."""
    return WeightedMMCE(width, squared=squared, normalization="authors_code")
