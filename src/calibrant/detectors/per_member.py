"""All outlier scores of an ensemble: fitted per member, averaged over the members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calibrant.detectors.base import (
    SCORES,
    FittedModule,
    OutlierScore,
    Standardise,
    query_features,
    reference_features,
    subsample,
)
from calibrant.detectors.distances import DistanceScore, ReferencePoints, distance_scores

DEFAULT_SCORES = ("density", "forest", "svm", "neighbors")


class MemberScores(FittedModule):
    """Several scores of one member's features: standardised once, distances to the reference points taken once."""

    def __init__(self, heads: Sequence[OutlierScore], *, rescale: bool, block_size: int) -> None:
        super().__init__()
        self.standard = Standardise(rescale=rescale)
        self.references = ReferencePoints()
        self.heads = nn.ModuleDict({head.name: head.as_head() for head in heads})
        self.block_size = block_size

    def fit(self, features: Tensor) -> MemberScores:
        """Fit every score to features (N, D)."""
        points = self.standard.fit(features)(features)
        if self._near():
            self.references.fit(points)
        for head in self._heads():
            if isinstance(head, DistanceScore):
                head.fit_references(self.references)
            else:
                head.fit_points(points)
        return self

    def forward(self, features: Tensor) -> Tensor:
        """Scores (M, S) of features (M, D)."""
        points = self.standard(features)
        near = self._near()
        found = dict(zip((head.name for head in near), self._distance_scores(near, points)))
        columns = [found[head.name] if head.name in found else head.score_points(points) for head in self._heads()]
        return torch.stack(columns, 1)

    def _distance_scores(self, near: list[DistanceScore], points: Tensor) -> list[Tensor]:
        return distance_scores(near, self.references, points, self.block_size) if near else []

    def _heads(self) -> list[OutlierScore]:
        return [head for head in self.heads.values() if isinstance(head, OutlierScore)]

    def _near(self) -> list[DistanceScore]:
        return [head for head in self._heads() if isinstance(head, DistanceScore)]


class OutlierScores(FittedModule):
    """s-bar: the mean over members of the score vector, each member's scores fitted to that member's features.

    `scores` names registered scores (see `SCORES`), which become the columns; `options` holds further arguments of a
    score by its name, as in `{"neighbors": {"k": 10}}`; the other arguments hold for all of them.

    >>> features = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))  # two members
    >>> OutlierScores().fit(features).score(features[:, :5]).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        scores: Sequence[str] = DEFAULT_SCORES,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        standardise: bool = True,
        max_points: int = 20_000,
        block_size: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.scores = tuple(scores)
        self.options = {name: dict(values) for name, values in (options or {}).items()}
        _check_names(self.scores, self.options)
        self.standardise, self.max_points, self.block_size, self.seed = standardise, max_points, block_size, seed
        self.members = nn.ModuleList()
        self._member(0)  # refuses bad settings here, not at fit

    def fit(self, features: Any) -> OutlierScores:
        """Fit to features (K, N, D) of the training data, or (N, D) of a single network."""
        given = _members_first("features", features, reference_features)
        reference = subsample(given, self.max_points, self.seed)
        self.members = nn.ModuleList(self._member(k).fit(member) for k, member in enumerate(reference))
        return self

    @torch.no_grad()
    def score(self, features: Any) -> Tensor:
        """Scores (M, S) of features (K, M, D), larger = more outlying, averaged over the members."""
        mean = next(self.members.buffers(), torch.empty(0))  # of the first member's standardisation
        queries = _members_first("features", features, query_features, mean)
        if queries.shape[0] != len(self.members):
            raise ValueError(f"features hold {queries.shape[0]} members, but {len(self.members)} were fitted")
        return torch.cat([self(block) for block in torch.split(queries, self.block_size, dim=1)])

    def forward(self, features: Tensor) -> Tensor:
        """`score` without checks and without blocks of queries."""
        return torch.stack([member(features[k]) for k, member in enumerate(self.members)]).mean(0)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments and the number of members."""
        names = ("options", "standardise", "max_points", "block_size", "seed")
        own = {name: getattr(self, name) for name in names}
        return {"scores": list(self.scores), **own, "members": len(self.members)}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> OutlierScores:
        """Rebuild fitted scores from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        count = settings.pop("members")
        result = cls(**settings)
        result.members = nn.ModuleList(result._member(k) for k in range(count))
        return result._restore(tensors)

    def _member(self, k: int) -> MemberScores:
        common = {"standardise": self.standardise, "max_points": self.max_points, "block_size": self.block_size}
        heads = [SCORES[n](**{**common, "seed": self.seed + k, **self.options.get(n, {})}) for n in self.scores]
        return MemberScores(heads, rescale=self.standardise, block_size=self.block_size)


def _check_names(scores: Sequence[str], options: Mapping[str, Any]) -> None:
    unknown = [name for name in scores if name not in SCORES]
    if unknown or not scores:
        raise ValueError(f"scores must be some of {sorted(SCORES)}, not {unknown or 'none'}")
    if len(set(scores)) < len(scores):
        raise ValueError(f"scores name one more than once: {list(scores)}")
    foreign = [name for name in options if name not in scores]
    if foreign:
        raise ValueError(f"options are given for {foreign}, which are not among the scores {list(scores)}")


def _members_first(name: str, features: Any, check: Any, *args: Any) -> Tensor:
    dims = 2 if getattr(features, "ndim", 3) == 2 else 3
    result: Tensor = check(features, *args, dims=dims)
    return result[None] if dims == 2 else result
