"""Distance to the nearest reference points: s4."""

from __future__ import annotations

from typing import Any, Literal, get_args

from torch import Tensor

from calibrant import InputError
from calibrant.detectors.distances import ReferencePoints
from calibrant.detectors.nearest import NearestScore
from calibrant.slots import register

Which = Literal["kth", "mean"]


@register("detector", "neighbors")
class NeighborDistanceScore(NearestScore):
    """s4 = the k-th smallest of ||z - z_i||; with fewer than k reference points, the largest.

    `distance="mean"` gives the mean of the k smallest instead, as the published code does.

    >>> import torch
    >>> score = NeighborDistanceScore(k=2, standardize=False).fit(torch.tensor([[0.0], [1.0], [5.0]]))
    >>> score.score(torch.tensor([[0.25]]))
    tensor([0.7500])
    """

    label = "neighbor distance"
    distance: Which = "kth"

    def __init__(self, *, k: int = 8, distance: Which = "kth", **settings: Any) -> None:
        super().__init__(k=k, **settings)
        if distance not in get_args(Which):
            raise InputError(f"distance must be one of {', '.join(get_args(Which))}, not {distance!r}")
        self.distance = distance

    def fit_references(self, references: ReferencePoints) -> None:
        """Nothing to fit beyond the points."""

    def score_nearest(self, distances: Tensor, index: Tensor) -> Tensor:
        """The k-th, or the mean of the k distances."""
        return distances.mean(1) if self.distance == "mean" else distances.amax(1)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().config(), "distance": self.distance}
