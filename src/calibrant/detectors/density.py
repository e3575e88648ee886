"""Kernel density: -log s1, exact by matrix products and logsumexp."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.detectors.distances import DistanceScore, ReferencePoints
from calibrant.slots import register

_NEGLIGIBLE = -80.0


@register("detector", "density")
class KernelDensityScore(DistanceScore):
    """-log s1 = -log( 1/N sum_i exp(-||z - z_i||^2 / h) ), h = 2 bandwidth^2.

    `bandwidth` is in units of the (standardized) features. By default Scott's rule, N^(-1 / (D + 4)) times the root
    mean variance of the features, which is 1 when they are standardized.

    >>> score = KernelDensityScore(bandwidth=1.0, standardize=False).fit(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
    >>> score.score(torch.tensor([[0.0, 0.0]]))  # -log((1 + exp(-4 / 2)) / 2)
    tensor([0.5662])
    """

    label = "kernel density"
    h: Tensor

    def __init__(self, *, bandwidth: float | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.bandwidth = None if bandwidth is None else checks.positive("bandwidth", bandwidth)
        self.register_buffer("h", torch.tensor(math.nan))

    def fit_references(self, references: ReferencePoints) -> None:
        """Choose h."""
        points = references.points
        bandwidth = scott_bandwidth(points) if self.bandwidth is None else self.bandwidth
        self.h = torch.as_tensor(2 * bandwidth**2, dtype=points.dtype, device=points.device)

    def partial(self, start: int, squared: Tensor) -> Tensor:
        """Log sum_i exp(-d_i^2 / h) over one block."""
        exponent = squared / -self.h
        top = exponent.amax(1, keepdim=True).clamp(min=torch.finfo(exponent.dtype).min)  # distances may overflow
        # Terms below e^-80 of the largest change nothing, and as denormals they would make exp ten times slower.
        return (exponent - top).clamp(min=_NEGLIGIBLE).exp().sum(1).log() + top.squeeze(1)

    def combine(self, parts: list[Tensor], queries: Tensor, references: ReferencePoints) -> Tensor:
        """-log of the mean over all blocks."""
        return math.log(references.points.shape[0]) - torch.logsumexp(torch.stack(parts, 1), 1)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().config(), "bandwidth": self.bandwidth}


def scott_bandwidth(points: Tensor) -> float:
    """N^(-1 / (D + 4)) times the root mean variance of points (N, D), or times 1 if they do not vary."""
    count, dimension = points.shape
    spread = float(points.var(0, correction=0).mean().sqrt())
    return float(count ** (-1 / (dimension + 4)) * (spread if spread > 0 else 1.0))
