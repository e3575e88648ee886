"""The focal loss as a calibration loss (Mukhoti et al. 2020), with a fixed or a sample-dependent exponent."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.losses.inputs import predicted
from calibrant.slots import register


def focal(logits: Tensor, labels: Tensor, gamma: float = 3.0, *, sample_dependent: bool = False) -> Tensor:
    """mean_i -(1 - p_i)^gamma log p_i, where p_i is the probability of the label.

    If `sample_dependent` (FLSD-53), the exponent is 5 where p_i < 0.2, 3 where p_i < 0.5 and `gamma` above; it is a
    constant for the gradient.

    >>> focal(torch.zeros(1, 2), torch.tensor([0]), gamma=2.0)  # log(2) / 4
    tensor(0.1733)
    """
    batch = predicted(logits, labels)
    _exponent(gamma)
    log_p = batch.log_probabilities.gather(1, batch.labels[:, None]).squeeze(1)
    # Above 0, because a power below 1 has an infinite slope at 0; expm1 keeps the digits that 1 - p loses.
    rest = (-torch.expm1(log_p)).clamp(min=torch.finfo(log_p.dtype).tiny)
    if not sample_dependent:
        return -(rest**gamma * log_p).mean()
    p = log_p.detach().exp()
    exponent = torch.where(p < 0.2, 5.0, torch.where(p < 0.5, 3.0, gamma)).to(p.dtype)
    return -(rest**exponent * log_p).mean()


def _exponent(gamma: float) -> None:
    if not gamma >= 0 or gamma == float("inf"):
        raise InputError(f"gamma must be 0 or above and finite, not {gamma}")


@register("regularizer", "focal")
class FocalLoss(nn.Module):
    """Focal loss (Mukhoti et al. 2020); with gamma = 0 it is the cross-entropy. See `focal`."""

    def __init__(self, gamma: float = 3.0, *, sample_dependent: bool = False) -> None:
        super().__init__()
        _exponent(gamma)
        self.gamma, self.sample_dependent = gamma, sample_dependent

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The regularizer of one batch, a scalar."""
        return focal(logits, labels, self.gamma, sample_dependent=self.sample_dependent)
