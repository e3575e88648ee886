"""Distance to the k-th nearest neighbor of L2-normalized features."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from calibrant.detectors.distances import ReferencePoints
from calibrant.detectors.nearest import NearestScore
from calibrant.slots import register


@register("detector", "knn")
class KNNScore(NearestScore):
    """The k-th smallest of ||z / ||z|| - z_i / ||z_i|| ||, z_i being the training features; the largest if N < k.

    Sun, Ming, Zhu and Li, "Out-of-Distribution Detection with Deep Nearest Neighbors", ICML 2022, who use k = 50 with
    the 50,000 images of CIFAR-10. With `normalize=False` it is the distance of the features themselves, standardized
    unless `standardize` is false.

    >>> import torch
    >>> score = KNNScore(k=1).fit(torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    >>> score.score(torch.tensor([[7.0, 0.0], [-1.0, 0.0]]))
    tensor([0.0000, 1.4142])
    """

    label = "k-NN, normalized"

    def __init__(self, *, k: int = 50, normalize: bool = True, **settings: Any) -> None:
        super().__init__(k=k, normalize=normalize, **settings)

    def fit_references(self, references: ReferencePoints) -> None:
        """Nothing to fit beyond the points."""

    def score_nearest(self, distances: Tensor, index: Tensor) -> Tensor:
        """The k-th distance."""
        return distances.amax(1)
