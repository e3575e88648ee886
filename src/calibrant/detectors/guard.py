"""The range guard: inputs that score beyond nearly all validation data are rejected.

It lies beside the detectors, because all that it reads is a score of which larger means more outlying; any rule can
ask it.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.detectors.base import FittedModule


class RangeGuard(FittedModule):
    """Inputs are inside where no score exceeds its limit, about the `q`-quantile of validation data.

    The limit of a score is the k-th smallest of its N validation values, k = ceil(q' (N + 1)), and infinite if k > N;
    q' = 1 - (1 - q) / S shares the cost out among S scores. At most (1 - q) N of the validation inputs lie outside, and
    a new input that is exchangeable with them does so with probability at most 1 - q, whatever the distribution: the
    coverage that the guard can cost is known beforehand. NaN is outside.

    >>> guard = RangeGuard(q=0.9).fit(torch.arange(1.0, 20.0))  # k = 18 of 19
    >>> guard.limits, guard.inside(torch.tensor([17.5, 18.5]))
    (tensor([18.]), tensor([ True, False]))
    """

    limits: Tensor

    def __init__(self, *, q: float = 0.99) -> None:
        super().__init__()
        if not 0 < q < 1:
            raise InputError(f"q must lie in (0, 1), not {q}")
        self.q = float(q)
        self.register_buffer("limits", torch.empty(0))

    def fit(self, scores: Any) -> RangeGuard:
        """Set the limits from scores (N,) or (N, S) of validation data that no detector was fitted to."""
        values = _columns(checks.finite("scores", checks.floating("scores", scores))).detach()
        count, columns = values.shape
        rank = math.ceil((1 - (1 - self.q) / columns) * (count + 1))
        self.limits = values.sort(0).values[rank - 1] if rank <= count else values.new_full((columns,), torch.inf)
        return self

    def inside(self, scores: Any) -> Tensor:
        """(M,) bool: whether scores (M,) or (M, S) lie within the limits."""
        if self.limits.numel() == 0:
            raise InputError("scores cannot be judged before fit is called")
        values = _columns(checks.floating("scores", scores))
        if values.shape[1] != len(self.limits):
            raise InputError(f"scores have {values.shape[1]} columns, but the guard was fitted to {len(self.limits)}")
        result: Tensor = self(values)
        return result

    def forward(self, scores: Tensor) -> Tensor:
        """`inside` of scores (M, S), without checks."""
        return (scores <= self.limits).all(1)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"q": self.q}


def _columns(scores: Tensor) -> Tensor:
    if scores.dim() not in (1, 2):
        raise InputError(f"scores must have shape (N,) or (N, S), not {tuple(scores.shape)}")
    return scores[:, None] if scores.dim() == 1 else scores
