"""The contract of an outlier score: fit once on features, then a torch module that scores anywhere.

A score is larger the more outlying a point is. All that is fitted lives in buffers, so `state_dict` and `config`
together are the whole scorer and `from_state` rebuilds it without the data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from calibrant import checks
from calibrant.adapters.fitted import FittedModule as FittedModule

Scorer = TypeVar("Scorer", bound="OutlierScore")

SCORES: dict[str, type[OutlierScore]] = {}


class Standardise(FittedModule):
    """(x - mean) / scale per column; scale is the standard deviation, or 1 for constant columns.

    With `rescale=False` only the mean is taken off, which changes no distance but keeps matrix products precise.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, *, rescale: bool = True) -> None:
        super().__init__()
        self.rescale = rescale
        self.register_buffer("mean", torch.empty(0))
        self.register_buffer("scale", torch.empty(0))

    def fit(self, features: Tensor) -> Standardise:
        """Take mean and scale of features (N, D), in float64 where the device has that."""
        wide = features if features.device.type == "mps" else features.double()
        std, mean = torch.std_mean(wide, dim=0, correction=0)
        constant = std <= 1e-7 * mean.abs()  # below the resolution of float32
        scale = torch.where(constant, 1.0, std) if self.rescale else torch.ones_like(std)
        self.mean, self.scale = mean.to(features.dtype), scale.to(features.dtype)
        return self

    def forward(self, features: Tensor) -> Tensor:
        """The standardised features, same shape."""
        return (features - self.mean) / self.scale


class OutlierScore(FittedModule, ABC):
    """Base of every outlier score; a new one defines `name`, `fit_points` and `score_points`.

    `standardise` rescales every feature to unit variance over the reference points. At most `max_points` reference
    points are kept, a random subset drawn with `seed`. No temporary is larger than `block_size` x `block_size`.
    """

    name: ClassVar[str]
    standard: Standardise | None

    def __init__(
        self, *, standardise: bool = True, max_points: int = 20_000, block_size: int = 1024, seed: int = 0
    ) -> None:
        super().__init__()
        self.standardise = standardise
        self.max_points = int(checks.positive("max_points", max_points))
        self.block_size = int(checks.positive("block_size", block_size))
        self.seed = seed
        self.standard = Standardise(rescale=standardise)

    @abstractmethod
    def fit_points(self, points: Tensor) -> None:
        """Fit to standardised features (N, D)."""

    @abstractmethod
    def score_points(self, points: Tensor) -> Tensor:
        """Scores (M,) of standardised features (M, D), by tensor operations that `torch.export` can trace."""

    def fit(self: Scorer, features: Any) -> Scorer:
        """Fit to features (N, D) of the training data."""
        reference = subsample(reference_features(features, dims=2), self.max_points, self.seed)
        self.fit_points(self._standard().fit(reference)(reference))
        return self

    @torch.no_grad()
    def score(self, features: Any) -> Tensor:
        """Scores (M,) of features (M, D), larger = more outlying, on the device of the scorer."""
        mean = self._standard().mean
        queries = query_features(features, mean, dims=2)
        return torch.cat([self(block) for block in torch.split(queries, self.block_size)])

    def forward(self, features: Tensor) -> Tensor:
        """`score` without checks and without blocks of queries."""
        return self.score_points(self._standard()(features))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in ("standardise", "max_points", "block_size", "seed")}

    def as_head(self: Scorer) -> Scorer:
        """Give up the standardisation; an owner standardises once for several scorers."""
        self.standard = None
        return self

    def _standard(self) -> Standardise:
        if self.standard is None:
            raise ValueError(f"this {type(self).__name__} is a head: score through the OutlierScores that owns it")
        return self.standard


def register(score: type[Scorer]) -> type[Scorer]:
    """Class decorator: make a score known to `OutlierScores` under its `name`."""
    SCORES[score.name] = score
    return score


def reference_features(features: Any, *, dims: int) -> Tensor:
    """Checked training features, at least float32."""
    result = checks.finite("features", checks.floating("features", features, dims=dims)).detach()
    return result.to(torch.promote_types(result.dtype, torch.float32))


def query_features(features: Any, mean: Tensor, *, dims: int) -> Tensor:
    """Checked features to score, on the device and in the dtype of the fitted `mean` (D,)."""
    if mean.numel() == 0:
        raise ValueError("features cannot be scored before fit is called")
    result = checks.finite("features", checks.floating("features", features, dims=dims)).detach()
    if result.shape[-1] != mean.shape[0]:
        raise ValueError(f"features have {result.shape[-1]} columns, but the score was fitted to {mean.shape[0]}")
    return result.to(mean)


def subsample(features: Tensor, max_points: int, seed: int) -> Tensor:
    """At most `max_points` of the points (..., N, D), a seeded random subset in the given order."""
    total = features.shape[-2]
    if total <= max_points:
        return features
    generator = torch.Generator().manual_seed(seed)
    index = torch.randperm(total, generator=generator)[:max_points].sort().values
    return features.index_select(-2, index.to(features.device))
