"""The contract of a detector: what it reads, fitted once per member, then a torch module that scores anywhere.

A score is larger the more outlying an input is. All that is fitted lives in buffers, so `state_dict` and `config`
together are the whole detector and `from_state` rebuilds it without the data.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.adapters.fitted import FittedModule as FittedModule

Fits = TypeVar("Fits", bound="Detector")
Scorer = TypeVar("Scorer", bound="OutlierScore")
_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Standardize(FittedModule):
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

    def fit(self, features: Tensor) -> Standardize:
        """Take mean and scale of features (N, D), in float64 where the device has that."""
        wide = features if features.device.type == "mps" else features.double()
        std, mean = torch.std_mean(wide, dim=0, correction=0)
        constant = std <= 1e-7 * mean.abs()  # below the resolution of float32
        scale = torch.where(constant, 1.0, std) if self.rescale else torch.ones_like(std)
        self.mean, self.scale = mean.to(features.dtype), scale.to(features.dtype)
        return self

    def forward(self, features: Tensor) -> Tensor:
        """The standardized features, same shape."""
        return (features - self.mean) / self.scale


class Detector(FittedModule, ABC):
    """Base of every detector. It is fitted to one member of an ensemble, and scores what that member says of inputs.

    A detector that reads features alone derives from `OutlierScore`, one of logits alone from `LogitDetector`. One that
    reads both, or labels in its fit, derives from this class, says so in `reads` and `needs_labels`, and defines
    `fit_member` and `score_member`.

    The score of an ensemble is the mean over its members, unless `width`, `statistics` and `from_statistics` say
    otherwise: then it is a function of the mean over members of `width` statistics, such as the probabilities.

    Attributes:
        label: what tables call it; by default, its registered name.
        reads: "features" (M, D), "logits" (M, C), or both.
        needs_fit: whether it must be fitted to training data.
        needs_labels: whether its fit reads the labels of the training data.
        padded: names of buffers that may be longer for one member than for another, and to which rows of zeros can be
            added without changing a score; all others must have the same shape for an export of one loop over members.

    A buffer called `center`, (D,), says how many features, of which dtype and on which device, it was fitted to.
    """

    label: ClassVar[str] = ""
    reads: ClassVar[tuple[str, ...]] = ("features", "logits")
    needs_fit: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    padded: ClassVar[tuple[str, ...]] = ()
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.__signature__ = _signature(cls)

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Fit to features (N, D), logits (N, C) and labels (N,) of training data; None is what it does not read."""

    @abstractmethod
    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """Scores (M,) from features (M, D) and logits (M, C), by tensor operations that `torch.export` can trace."""

    def width(self, classes: int | None) -> int:
        """The number of statistics that are averaged over members, E; `classes` is C, where logits are read."""
        return 1

    def statistics(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """What is averaged over members, (M, E)."""
        return self.score_member(features, logits)[:, None]

    def from_statistics(self, mean: Tensor) -> Tensor:
        """Scores (M,) from the mean over members of the statistics, (M, E)."""
        return mean[:, 0]

    def fit(self: Fits, features: Any = None, logits: Any = None, labels: Any = None) -> Fits:
        """Fit to one member's features (N, D) and logits (N, C) of training data with `labels` (N,)."""
        given = {"features": features, "logits": logits}
        read = {name: reference_values(name, self._given(name, given[name]), dims=2) for name in self.reads}
        target = checks.labels("labels", self._given("labels", labels)) if self.needs_labels else None
        for name, value in read.items():
            if target is not None:
                checks.same_length("labels", target, name, value)
            checks.same_length(name, value, self.reads[0], read[self.reads[0]])
        self.fit_member(read.get("features"), read.get("logits"), target)
        return self

    @torch.no_grad()
    def score(self, features: Any = None, logits: Any = None) -> Tensor:
        """Scores (M,) of features (M, D) and logits (M, C), larger = more outlying, on the device of the detector."""
        center, read = getattr(self, "center", None), {"features": features, "logits": logits}
        for name in self.reads:
            value = self._given(name, read[name])
            if name == "features" and isinstance(center, Tensor):
                read[name] = query_features(value, center, dims=2)
            else:
                checked = checks.finite(name, checks.floating(name, value, dims=2))
                read[name] = checked.to(center) if isinstance(center, Tensor) else checked
        result: Tensor = self(*(value if name in self.reads else None for name, value in read.items()))
        return result

    def forward(self, features: Tensor | None = None, logits: Tensor | None = None) -> Tensor:
        """`score` without checks."""
        return self.score_member(features, logits)

    def _given(self, name: str, value: Any) -> Any:
        if value is None:
            raise InputError(f"{name} must be given: {type(self).__name__} reads them")
        return value


def _signature(kind: type) -> inspect.Signature:
    """The keywords of the constructor of `kind`, those that it passes on to the constructors it inherits included."""
    found: dict[str, inspect.Parameter] = {}
    for base in kind.__mro__:
        if "__init__" in vars(base):
            _, *own = inspect.signature(vars(base)["__init__"]).parameters.values()
            inherited = {p.name: p for p in own if p.kind in _KEYWORDS and p.name not in found}
            found = {**found, **inherited}
            if all(parameter.kind is not inspect.Parameter.VAR_KEYWORD for parameter in own):
                break
    return inspect.Signature([parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in found.values()])


class OutlierScore(Detector):
    """Base of every detector of features alone; a new one defines `fit_points` and `score_points`.

    `standardize` rescales every feature to unit variance over the reference points. `normalize` divides every feature
    vector by its Euclidean norm instead, so that only its direction counts. At most `max_points` reference points are
    kept, a random subset drawn with `seed`. No temporary is larger than `block_size` x `block_size`.
    """

    reads = ("features",)
    standard: Standardize | None

    def __init__(
        self,
        *,
        standardize: bool = True,
        normalize: bool = False,
        max_points: int = 20_000,
        block_size: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.standardize, self.normalize = standardize, normalize
        self.max_points = int(checks.positive("max_points", max_points))
        self.block_size = int(checks.positive("block_size", block_size))
        self.seed = seed
        self.standard = Standardize(rescale=standardize and not normalize)

    @abstractmethod
    def fit_points(self, points: Tensor) -> None:
        """Fit to standardized features (N, D)."""

    @abstractmethod
    def score_points(self, points: Tensor) -> Tensor:
        """Scores (M,) of standardized features (M, D), by tensor operations that `torch.export` can trace."""

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Fit to a seeded subset of features (N, D)."""
        assert features is not None
        points = self._lengths(subsample(features, self.max_points, self.seed))
        self.fit_points(self._standard().fit(points)(points))

    @torch.no_grad()
    def score(self, features: Any = None, logits: Any = None) -> Tensor:
        """Scores (M,) of features (M, D), larger = more outlying, on the device of the scorer."""
        mean = self._standard().mean
        queries = query_features(features, mean, dims=2)
        return torch.cat([self(block) for block in torch.split(queries, self.block_size)])

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The scores of standardized or normalized features."""
        assert features is not None
        return self.score_points(self._standard()(self._lengths(features)))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        names = ("standardize", "normalize", "max_points", "block_size", "seed")
        return {name: getattr(self, name) for name in names}

    def as_head(self: Scorer) -> Scorer:
        """Give up the standardization; an owner standardizes once for several scorers."""
        self.standard = None
        return self

    def _lengths(self, features: Tensor) -> Tensor:
        return unit_length(features) if self.normalize else features

    def _standard(self) -> Standardize:
        if self.standard is None:
            raise InputError(f"this {type(self).__name__} is a head: score through the OutlierScores that owns it")
        return self.standard


def unit_length(features: Tensor) -> Tensor:
    """Features (..., D) divided by their Euclidean norms; a vector of zeros stays one."""
    return torch.nn.functional.normalize(features, dim=-1)


def reference_values(name: str, value: Any, *, dims: int) -> Tensor:
    """Checked training features or logits, at least float32."""
    result = checks.finite(name, checks.floating(name, value, dims=dims)).detach()
    return result.to(torch.promote_types(result.dtype, torch.float32))


def query_features(features: Any, mean: Tensor, *, dims: int) -> Tensor:
    """Checked features to score, on the device and in the dtype of the fitted `mean` (D,)."""
    if mean.numel() == 0:
        raise InputError("features cannot be scored before fit is called")
    result = checks.finite("features", checks.floating("features", features, dims=dims)).detach()
    if result.shape[-1] != mean.shape[0]:
        raise InputError(f"features have {result.shape[-1]} columns, but the score was fitted to {mean.shape[0]}")
    return result.to(mean)


def subsample(features: Tensor, max_points: int, seed: int) -> Tensor:
    """At most `max_points` of the points (..., N, D), a seeded random subset in the given order."""
    index = subsample_index(features.shape[-2], max_points, seed)
    return features if index is None else features.index_select(-2, index.to(features.device))


def subsample_index(total: int, max_points: int, seed: int) -> Tensor | None:
    """Which of `total` points `subsample` keeps; None: all."""
    if total <= max_points:
        return None
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(total, generator=generator)[:max_points].sort().values
