"""Distance to the k-th nearest reference point: s4."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.outliers.base import register
from calibrant.outliers.distances import DistanceScore, ReferencePoints


@register
class NeighborDistanceScore(DistanceScore):
    """s4 = the k-th smallest of ||z - z_i||; with fewer than k reference points, the largest.

    The 2k nearest are found by matrix products, whose rounding is of the order of 1e-3 for coinciding points; their
    distances are then computed again from the differences.

    >>> score = NeighborDistanceScore(k=2, standardise=False).fit(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> score.score(torch.tensor([[0.25]]))
    tensor([0.7500])
    """

    name = "neighbors"

    def __init__(self, *, k: int = 8, **settings: Any) -> None:
        super().__init__(**settings)
        self.k = int(checks.positive("k", k))

    def fit_references(self, references: ReferencePoints) -> None:
        """Nothing to fit beyond the points."""

    def partial(self, start: int, squared: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest of one block: squared distances and indices, (M, 2k) each."""
        values, index = squared.topk(min(2 * self.k, squared.shape[1]), dim=1, largest=False)
        return values, index + start

    def combine(self, parts: list[tuple[Tensor, Tensor]], queries: Tensor, references: ReferencePoints) -> Tensor:
        """The k-th smallest distance, computed exactly among the nearest of all blocks."""
        values = torch.cat([value for value, _ in parts], 1)
        index = torch.cat([index for _, index in parts], 1)
        nearest = values.topk(min(2 * self.k, values.shape[1]), dim=1, largest=False).indices
        differences = queries[:, None] - references.points[index.gather(1, nearest)]
        exact = differences.square().sum(2)
        return exact.topk(min(self.k, exact.shape[1]), dim=1, largest=False).values.amax(1).sqrt()

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().config(), "k": self.k}
