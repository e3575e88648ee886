"""Differentiable ECE (Bohdal, Yang and Hospedales 2021): soft bins for the confidence, soft ranks for the accuracy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.losses.inputs import predicted
from calibrant.slots import register


def dece(
    logits: Tensor, labels: Tensor, bins: int = 15, *, rank_temperature: float = 100.0, bin_temperature: float = 0.01
) -> Tensor:
    """sum_m | sum_i o_im (a_i - r_i) | / B, with soft bins o and soft accuracies a.

    o_i = softmax_m( (m r_i - (0 + 1 + ... + (m - 1)) / M) / bin_temperature ), m = 1 .. M = `bins`: the softmax picks
    the bin of equal width that holds r_i. a_i = relu(2 - rank_i), where rank_i = 1 + sum_{k != y_i}
    sigmoid(rank_temperature (p_ik - p_iy)) is 1 if the label y_i is on top; a tie with the top counts one half.

    This is the original's sum over bins of size x |accuracy - confidence|, in which the size cancels, so that empty
    bins need no constant against division by zero (there: 1e-6).

    >>> dece(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]))  # confidence 0.88, accuracy one half
    tensor(0.3808)
    """
    log_probabilities, own, confidence, _ = predicted(logits, labels)
    _bins(bins)
    checks.positive("rank_temperature", rank_temperature)
    checks.positive("bin_temperature", bin_temperature)
    p = log_probabilities.exp()
    own = own[:, None]
    ahead = torch.sigmoid(rank_temperature * (p - p.gather(1, own))).scatter(1, own, 0)
    accuracy = torch.relu(1 - ahead.sum(1))
    m = torch.arange(bins, dtype=p.dtype, device=p.device)
    scores = (m + 1) * confidence[:, None] - m * (m + 1) / (2 * bins)
    membership = torch.softmax(scores / bin_temperature, dim=1)
    return (membership * (accuracy - confidence)[:, None]).mean(0).abs().sum()


def _bins(bins: int) -> None:
    if bins < 1:
        raise InputError(f"bins must be at least 1, not {bins}")


@register("regularizer", "dece")
class DECE(nn.Module):
    """Differentiable expected calibration error (Bohdal et al. 2021); see `dece`."""

    def __init__(self, bins: int = 15, *, rank_temperature: float = 100.0, bin_temperature: float = 0.01) -> None:
        super().__init__()
        _bins(bins)
        checks.positive("rank_temperature", rank_temperature)
        checks.positive("bin_temperature", bin_temperature)
        self.bins, self.rank_temperature, self.bin_temperature = bins, rank_temperature, bin_temperature

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        return dece(
            logits,
            labels,
            self.bins,
            rank_temperature=self.rank_temperature,
            bin_temperature=self.bin_temperature,
        )
