"""Local outlier factor: how much sparser the points lie around a query than around its neighbors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.detectors.distances import ReferencePoints
from calibrant.detectors.nearest import NearestScore
from calibrant.slots import register


@register("detector", "lof")
class LocalOutlierFactorScore(NearestScore):
    """LOF(z) = mean over the k nearest reference points o of lrd(o) / lrd(z) (Breunig et al. 2000).

    lrd(z) = 1 / mean_o max(kdist(o), ||z - o||) is the local reachability density and kdist(o) the distance from o to
    its own k-th neighbor, o itself not counted. About 1 amid the data, larger outside. Not one of the paper's scores,
    but the published code's selector reads it.

    >>> points = torch.arange(10.0)[:, None]
    >>> LocalOutlierFactorScore(k=2, standardize=False).fit(points).score(torch.tensor([[4.5], [20.0]]))
    tensor([1.0000, 7.6667])
    """

    label = "local outlier factor"
    reach: Tensor
    density: Tensor
    floor: Tensor

    def __init__(self, *, k: int = 20, **settings: Any) -> None:
        super().__init__(k=k, **settings)
        self.register_buffer("reach", torch.empty(0))
        self.register_buffer("density", torch.empty(0))
        self.register_buffer("floor", torch.tensor(0.0))

    def fit_references(self, references: ReferencePoints) -> None:
        """Take kdist (N,) and lrd (N,) of the reference points."""
        found = [self._others(references, start) for start in range(0, len(references.points), self.block_size)]
        distances = torch.cat([distances for distances, _ in found])
        index = torch.cat([index for _, index in found])
        self.reach = distances.amax(1)
        self.floor = 1e-10 + 10 * torch.finfo(distances.dtype).eps * references.norms.mean().sqrt()
        self.density = self._density(distances, index)

    def score_nearest(self, distances: Tensor, index: Tensor) -> Tensor:
        """The mean density of the neighbors over that of the query."""
        others = max(min(self.k, len(self.reach) - 1), 1)
        distances, index = distances[:, :others], index[:, :others]
        return self.density[index].mean(1) / self._density(distances, index)

    def _density(self, distances: Tensor, index: Tensor) -> Tensor:
        """The lrd (M,) of points with these neighbors; where over k points coincide, rounding must not decide."""
        return 1 / (torch.maximum(self.reach[index], distances).mean(1) + self.floor)

    def _others(self, references: ReferencePoints, start: int) -> tuple[Tensor, Tensor]:
        """The nearest reference points of those from `start` on, each other than itself."""
        points = references.points
        queries = points[start : start + self.block_size]
        if len(points) == 1:  # its own neighbor, for want of another
            return queries.new_zeros(1, 1), torch.zeros(1, 1, dtype=torch.long, device=queries.device)
        numbers = torch.arange(len(points), device=queries.device)
        own, parts = numbers[start : start + len(queries), None], []
        for first, squared in references.blocks(queries, self.block_size):
            itself = own == numbers[first : first + squared.shape[1]]
            parts.append(self.partial(first, squared.masked_fill(itself, torch.inf)))
        distances, index = self.nearest(parts, queries, references)
        others = min(self.k, len(points) - 1)
        return distances[:, :others], index[:, :others]
