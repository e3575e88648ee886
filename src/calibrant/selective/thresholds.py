"""A threshold for a wanted coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from calibrant import InputError, checks
from calibrant.metrics import threshold_at_coverage


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


def threshold_for_coverage(gate: Any, coverage: float) -> Threshold:
    """The threshold with the smallest achievable coverage of `gate` (n,) that is at least `coverage`.

    `gate` is a tensor, an array, a series or a list.

    Ties are accepted together. Coverage 0 accepts nothing, on any data. Where `coverage` takes all n, as 1 does, the
    threshold is minus infinity: everything is accepted, on any data.

    >>> import torch
    >>> threshold_for_coverage(torch.tensor([0.1, 0.4, 0.4, 0.9]), 0.5)
    Threshold(value=0.4000000059604645, wanted=0.5, achieved=0.75, accepted=3, total=4)
    """
    output = checks.finite("gate", checks.measured.floating("gate", gate, dims=1))
    total = len(output)
    try:
        inside = bool(0 <= coverage <= 1)
    except (TypeError, ValueError, RuntimeError):  # no number, or several
        inside = False
    if not inside:
        raise InputError(f"coverage must lie in [0, 1], not {coverage!r}")
    if coverage == 0:
        value = math.inf
    elif coverage > (total - 1) / total:
        value = -math.inf
    else:
        value = threshold_at_coverage(output, coverage)
    accepted = int((output >= value).sum())
    return Threshold(value, float(coverage), accepted / total, accepted, total)
