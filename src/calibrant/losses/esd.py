"""Expected squared difference (Yoon et al. 2023): a calibration error without bins, kernels or anything to tune."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from calibrant.kernels import accumulation_dtype
from calibrant.losses.inputs import confidence_and_correct, predicted
from calibrant.slots import register


def esd(confidence: Any, correct: Any) -> Tensor:
    """The unbiased estimate of E_i[ (E_j[ 1(r_j <= r_i) (c_j - r_j) ])^2 ], which may be below 0.

    With d_j = 1(r_j <= r_i) (c_j - r_j) over the n - 1 points j other than i, the estimate of the original,
    mean_i( mean_j(d)^2 - var_j(d) / (n - 1) ), is mean_i( ((sum_j d_j)^2 - sum_j d_j^2) / ((n - 1)(n - 2)) ).

    `confidence` r and `correct` c have shape (n,). Tied points count for each other. The gradient is that of c - r; the
    indicator has none. Fewer than three points hold no pair j, k besides i: the estimate is 0. O(n log n).

    >>> esd(torch.tensor([0.5, 0.6, 0.9]), torch.tensor([1, 1, 0]))  # only i = 3 has two below: 0.5 * 0.4 / 3
    tensor(0.0667)
    """
    r, c = confidence_and_correct(confidence, correct)
    n = len(r)
    if n < 3:
        return (r * 0).sum()
    order = r.detach().argsort()
    ordered = r.detach()[order]
    last_tied = torch.searchsorted(ordered, ordered, right=True) - 1
    error = (c - r)[order].to(accumulation_dtype(r.device))
    total = error.cumsum(0)[last_tied] - error
    total_of_squares = error.square().cumsum(0)[last_tied] - error.square()
    return ((total.square() - total_of_squares).mean() / ((n - 1) * (n - 2))).to(r.dtype)


@register("regularizer", "esd")
class ESD(nn.Module):
    """Expected squared difference, ESD (Yoon et al. 2023); the confidence is the largest probability. See `esd`."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        batch = predicted(logits, labels)
        return esd(batch.confidence, batch.correct)
