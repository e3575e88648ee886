"""A threshold for a wanted coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from calibrant import checks


@dataclass(frozen=True)
class Threshold:
    """Accept where the selector's output is at least `value`; `achieved` of the validation data are."""

    value: float
    wanted: float
    achieved: float
    accepted: int
    total: int

    def __float__(self) -> float:
        return self.value


def check_coverage(coverage: float) -> float:
    """`coverage` if it lies in [0, 1]."""
    if not 0 <= coverage <= 1:
        raise ValueError(f"coverage must lie in [0, 1], not {coverage}")
    return float(coverage)


def threshold_for_coverage(gate: Tensor, coverage: float) -> Threshold:
    """The threshold with the smallest achievable coverage of `gate` (n,) that is at least `coverage`.

    Ties are accepted together. Coverage 0 accepts nothing and coverage 1 everything, on any data.

    >>> import torch
    >>> threshold_for_coverage(torch.tensor([0.1, 0.4, 0.4, 0.9]), 0.5)
    Threshold(value=0.4000000059604645, wanted=0.5, achieved=0.75, accepted=3, total=4)
    """
    checks.finite("gate", checks.floating("gate", gate, dims=1))
    coverage, total = check_coverage(coverage), len(gate)
    wanted = math.ceil(coverage * total)
    if wanted > 0 and (wanted - 1) / total >= coverage:  # the product was rounded up, as in 0.07 * 100
        wanted -= 1
    if wanted == 0:
        return Threshold(math.inf, coverage, 0.0, 0, total)
    value = float(gate.topk(wanted).values[-1])
    accepted = int((gate >= value).sum())
    return Threshold(-math.inf if wanted == total else value, coverage, accepted / total, accepted, total)
