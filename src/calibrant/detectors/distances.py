"""Squared distances to reference points, block by block, shared by the scores that are functions of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.detectors.base import FittedModule, OutlierScore


class ReferencePoints(FittedModule):
    """Points (N, D) and their squared norms (N,).

    ||q - p||^2 = ||q||^2 - 2 q.p + ||p||^2 is one matrix product, but cancels where points are close to each other
    and far from the origin; points are therefore expected centered.
    """

    points: Tensor
    norms: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("points", torch.empty(0, 0))
        self.register_buffer("norms", torch.empty(0))

    def fit(self, points: Tensor) -> ReferencePoints:
        """Keep the points."""
        self.points = points.contiguous()
        self.norms = points.square().sum(1)
        return self

    def squared_distances(self, queries: Tensor, start: int, stop: int) -> Tensor:
        """||q_i - p_j||^2 for queries (M, D) and the reference points from start to stop: (M, stop - start)."""
        block = torch.addmm(self.norms[start:stop], queries, self.points[start:stop].T, alpha=-2)
        return (block + queries.square().sum(1, keepdim=True)).clamp(min=0)

    def blocks(self, queries: Tensor, size: int) -> Iterator[tuple[int, Tensor]]:
        """All squared distances from queries (M, D), `size` reference points at a time, with the first one's index."""
        for start in range(0, self.points.shape[0], size):
            yield start, self.squared_distances(queries, start, min(start + size, self.points.shape[0]))


class DistanceScore(OutlierScore):
    """A score that needs only the distances to the reference points, one block of them at a time."""

    references: ReferencePoints | None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.references = ReferencePoints()

    @abstractmethod
    def fit_references(self, references: ReferencePoints) -> None:
        """Fit to the reference points."""

    @abstractmethod
    def partial(self, start: int, squared: Tensor) -> Any:
        """What one block (M, B) of squared distances, of the reference points from `start` on, contributes."""

    @abstractmethod
    def combine(self, parts: list[Any], queries: Tensor, references: ReferencePoints) -> Tensor:
        """Scores (M,) from the contributions of all blocks."""

    def fit_points(self, points: Tensor) -> None:
        """Keep the points and fit to them."""
        if self.references is not None:
            self.fit_references(self.references.fit(points))

    def score_points(self, points: Tensor) -> Tensor:
        """Scores (M,) in one pass over the reference points."""
        if self.references is None:
            raise InputError(f"this {type(self).__name__} is a head: score through the OutlierScores that owns it")
        return distance_scores([self], self.references, points, self.block_size)[0]

    def as_head(self) -> DistanceScore:
        """Give up the reference points and the standardization; an owner holds them for several scorers."""
        self.references = None
        return super().as_head()


def distance_scores(
    scores: Sequence[DistanceScore], references: ReferencePoints, queries: Tensor, block_size: int
) -> list[Tensor]:
    """All `scores` of the queries (M, D) in one pass over the reference points."""
    parts: list[list[Any]] = [[] for _ in scores]
    for start, squared in references.blocks(queries, block_size):
        for score, found in zip(scores, parts):
            found.append(score.partial(start, squared))
    return [score.combine(found, queries, references) for score, found in zip(scores, parts)]
