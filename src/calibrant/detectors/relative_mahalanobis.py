"""Mahalanobis distance to the nearest class mean, less that to the mean of all data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant.detectors.mahalanobis import Gaussians, MahalanobisScore
from calibrant.slots import register


@register("detector", "relative_mahalanobis")
class RelativeMahalanobisScore(MahalanobisScore):
    """min_c d_c - d_0: d_c is the squared Mahalanobis distance to class c, d_0 that to all data as one class.

    Ren, Fort, Liu, Roy, Padhy and Lakshminarayanan, "A Simple Fix to Mahalanobis Distance for Improving Near-OOD
    Detection", 2021. The background d_0, with the mean and the covariance of all data, takes out what is unusual
    about an input in directions that do not tell the classes apart. The options are those of `mahalanobis`.
    """

    label = "relative Mahalanobis"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.background = Gaussians()

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Fit the classes, then all data as one."""
        super().fit_member(features, logits, labels)
        assert features is not None
        assert labels is not None
        self.background.fit(self._lengths(features), torch.zeros_like(labels), self.shrinkage)

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The distance to the nearest class mean less that to the mean of all data."""
        assert features is not None
        nearest = super().score_member(features, logits)
        background: Tensor = self.background(self._lengths(features))[:, 0]
        return nearest - background
