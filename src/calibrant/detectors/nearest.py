"""The k nearest reference points, shared by the scores that are functions of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.detectors.distances import DistanceScore, ReferencePoints


class NearestScore(DistanceScore):
    """A score that needs the k nearest reference points and the distances to them.

    The 2k nearest are found by matrix products, whose rounding is of the order of 1e-3 for coinciding points; their
    distances are then computed again from the differences.
    """

    def __init__(self, *, k: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.k = int(checks.positive("k", k))

    @abstractmethod
    def score_nearest(self, distances: Tensor, index: Tensor) -> Tensor:
        """Scores (M,) from the distances to the k nearest reference points, (M, k) in order, and their indices."""

    def partial(self, start: int, squared: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest of one block: squared distances and indices, (M, 2k) each."""
        values, index = squared.topk(min(2 * self.k, squared.shape[1]), dim=1, largest=False)
        return values, index + start

    def combine(self, parts: list[tuple[Tensor, Tensor]], queries: Tensor, references: ReferencePoints) -> Tensor:
        """The scores from the nearest of all blocks."""
        return self.score_nearest(*self.nearest(parts, queries, references))

    def nearest(
        self, parts: list[tuple[Tensor, Tensor]], queries: Tensor, references: ReferencePoints
    ) -> tuple[Tensor, Tensor]:
        """Exact distances to the k nearest (fewer if there are fewer) and their indices, from those of all blocks.

        What a block reports as infinitely far stays so.
        """
        values = torch.cat([value for value, _ in parts], 1)
        index = torch.cat([index for _, index in parts], 1)
        rough, found = values.topk(min(2 * self.k, values.shape[1]), dim=1, largest=False)
        index = index.gather(1, found)
        exact = _exact(queries, references.points, index)
        squared, order = exact.masked_fill(rough.isinf(), torch.inf).topk(min(self.k, exact.shape[1]), 1, largest=False)
        return squared.sqrt(), index.gather(1, order)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().config(), "k": self.k}


def _exact(queries: Tensor, points: Tensor, index: Tensor) -> Tensor:
    """||q_i - p_j||^2 of queries (M, D) and, for each, the points at `index` (M, n): (M, n)."""
    if torch.compiler.is_exporting():  # one operation, where n of them would make a large program
        return (queries[:, None] - points[index]).square().sum(2)
    return torch.stack([(queries - points[one]).square().sum(1) for one in index.unbind(1)], 1)
