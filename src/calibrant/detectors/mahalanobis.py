"""Mahalanobis distance to the nearest class mean, with one covariance for all classes."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.detectors.base import Detector, FittedModule, unit_length
from calibrant.detectors.distances import ReferencePoints
from calibrant.slots import register

Shrinkage = float | Literal["auto"]


class Gaussians(FittedModule):
    """Normal distributions with means mu_c, (C, D), and one covariance S = A^-1 A^-T: d_c = ||A (z - mu_c)||^2.

    S is shrunk to (1 - s) S + s (tr S / D) I with s = `shrinkage`; "auto" estimates it (Ledoit and Wolf 2004), so that
    the distance is defined where there are fewer points than features, or features that depend on each other.
    Directions in which S is below 1e-10 of its largest eigenvalue are taken to have that variance.
    """

    center: Tensor
    whiten: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("whiten", torch.empty(0, 0))
        self.means = ReferencePoints()

    def fit(self, features: Tensor, labels: Tensor, shrinkage: Shrinkage) -> Gaussians:
        """Fit to features (N, D) with labels (N,); the classes are those that occur."""
        points = features.cpu().double()
        present, index = torch.unique(labels.cpu(), return_inverse=True)
        sums = points.new_zeros(len(present), points.shape[1]).index_add_(0, index, points)
        means = sums / index.bincount()[:, None]
        spectrum, basis = torch.linalg.eigh(_covariance(points - means[index], shrinkage))
        largest = spectrum[-1].clamp(min=0)
        scale = torch.where(largest > 0, spectrum.clamp(min=1e-10 * largest), torch.ones_like(spectrum)).sqrt()
        whiten, center = basis / scale, points.mean(0)
        self.center, self.whiten = center.to(features), whiten.to(features).contiguous()
        self.means.fit(((means - center) @ whiten).to(features))
        return self

    def forward(self, features: Tensor) -> Tensor:
        """The squared distances d_c, (M, C), of features (M, D)."""
        whitened = (features - self.center) @ self.whiten
        return self.means.squared_distances(whitened, 0, self.means.points.shape[0])


def _covariance(residuals: Tensor, shrinkage: Shrinkage) -> Tensor:
    """The shrunk covariance (D, D) of residuals (N, D), whose mean is taken to be 0."""
    covariance = residuals.T @ residuals / len(residuals)
    if shrinkage == "auto":
        from sklearn.covariance import ledoit_wolf_shrinkage

        varies = bool(residuals.any()) and len(residuals) > 1
        shrinkage = float(ledoit_wolf_shrinkage(residuals.numpy(), assume_centered=True)) if varies else 0.0
    size = covariance.shape[0]
    identity = torch.eye(size, dtype=covariance.dtype) * (covariance.trace() / size)
    return (1 - shrinkage) * covariance + shrinkage * identity


@register("detector", "mahalanobis")
class MahalanobisScore(Detector):
    """min_c (z - mu_c)^T S^-1 (z - mu_c): mu_c is the mean of class c, S the covariance around the class means.

    Lee, Lee, Lee and Shin, "A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial
    Attacks", NeurIPS 2018, here of the features alone and divided by their norm unless `normalize` is false.
    `shrinkage` in [0, 1] draws S to a multiple of the identity; see `Gaussians`.

    >>> features = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> score = MahalanobisScore(normalize=False, shrinkage=0).fit(features, labels=torch.zeros(4, dtype=torch.long))
    >>> score.score(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))  # S = I / 2
    tensor([2.0000, 8.0000])
    """

    label = "Mahalanobis"
    reads = ("features",)
    needs_labels = True

    def __init__(self, *, normalize: bool = True, shrinkage: Shrinkage = "auto") -> None:
        super().__init__()
        if shrinkage != "auto" and not 0 <= shrinkage <= 1:
            raise InputError(f"shrinkage must be auto or lie in [0, 1], not {shrinkage}")
        self.normalize, self.shrinkage = normalize, shrinkage
        self.classes = Gaussians()

    @property
    def center(self) -> Tensor:
        """The mean of all features, (D,)."""
        return self.classes.center

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Take the class means and the covariance around them."""
        assert features is not None
        assert labels is not None
        self.classes.fit(self._lengths(features), labels, self.shrinkage)

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The distance to the nearest class mean."""
        assert features is not None
        nearest: Tensor = self.classes(self._lengths(features)).amin(1)
        return nearest

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"normalize": self.normalize, "shrinkage": self.shrinkage}

    def _lengths(self, features: Tensor) -> Tensor:
        return unit_length(features) if self.normalize else features
