"""Any detectors of an ensemble as columns: fitted per member, averaged over the members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.detectors.base import (
    Detector,
    FittedModule,
    OutlierScore,
    Standardize,
    query_features,
    reference_values,
    subsample_index,
)
from calibrant.detectors.distances import DistanceScore, ReferencePoints, distance_scores
from calibrant.predictions import Predictions
from calibrant.slots import build, check, names, options_of

DEFAULT_SCORES = ("density", "forest", "svm", "neighbors")


class MemberScores(FittedModule):
    """Several detectors of one member: features standardized once, distances to the reference points taken once."""

    def __init__(self, heads: Mapping[str, Detector], *, rescale: bool, block_size: int) -> None:
        super().__init__()
        self.standard = Standardize(rescale=rescale)
        self.references = ReferencePoints()
        self.heads = nn.ModuleDict({name: _head(head) for name, head in heads.items()})
        self.block_size = block_size

    def fit(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> MemberScores:
        """Fit every detector to features (N, D), logits (N, C) and labels (N,), of which None is read by none."""
        points = None if features is None else self.standard.fit(features)(features)
        if points is None and logits is not None:
            self.standard.mean = logits.new_empty(0)  # its device and dtype are those of the queries
        if points is not None and self._near():
            self.references.fit(points)
        for head in self._heads().values():
            if isinstance(head, DistanceScore) and _shares(head):
                head.fit_references(self.references)
            elif isinstance(head, OutlierScore) and _shares(head) and points is not None:
                head.fit_points(points)
            else:
                head.fit_member(*_read(head, features, logits), labels if head.needs_labels else None)
        return self

    def forward(self, features: Tensor | None = None, logits: Tensor | None = None) -> Tensor:
        """What is averaged over members, (M, E): S scores, if every detector is averaged over members itself."""
        points, near = None if features is None else self.standard(features), self._near()
        shared = {} if points is None or not near else self._distance_scores(near, points)
        return torch.cat([self._columns(name, shared, points, features, logits) for name in self.heads], 1)

    def pool(self, mean: Tensor, classes: int | None) -> Tensor:
        """Scores (M, S) from the means over members, (M, E)."""
        heads = self._heads().values()
        parts = torch.split(mean, [head.width(classes) for head in heads], 1)
        return torch.stack([head.from_statistics(part) for head, part in zip(heads, parts)], 1)

    def reads(self, what: str) -> bool:
        """Whether a detector reads `what`, "features" or "logits"."""
        return any(what in head.reads for head in self._heads().values())

    def padded(self) -> set[str]:
        """Names of buffers that rows of zeros can be added to."""
        return {f"heads.{name}.{buffer}" for name, head in self._heads().items() for buffer in head.padded}

    def _columns(
        self,
        name: str,
        shared: Mapping[str, Tensor],
        points: Tensor | None,
        features: Tensor | None,
        logits: Tensor | None,
    ) -> Tensor:
        head = self._heads()[name]
        if name in shared:
            return shared[name][:, None]
        if isinstance(head, OutlierScore) and _shares(head) and points is not None:
            return head.score_points(points)[:, None]
        return head.statistics(*_read(head, features, logits))

    def _distance_scores(self, near: Mapping[str, DistanceScore], points: Tensor) -> dict[str, Tensor]:
        return dict(zip(near, distance_scores([*near.values()], self.references, points, self.block_size)))

    def _heads(self) -> dict[str, Detector]:
        return {name: head for name, head in self.heads.items() if isinstance(head, Detector)}

    def _near(self) -> dict[str, DistanceScore]:
        return {n: head for n, head in self._heads().items() if isinstance(head, DistanceScore) and _shares(head)}


def _shares(head: Detector) -> bool:
    """Whether a detector reads the standardized features that all such detectors share."""
    return isinstance(head, OutlierScore) and not head.normalize


def _head(head: Detector) -> Detector:
    return head.as_head() if isinstance(head, OutlierScore) and _shares(head) else head


def _read(head: Detector, features: Tensor | None, logits: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return features if "features" in head.reads else None, logits if "logits" in head.reads else None


class OutlierScores(FittedModule):
    """s-bar: the mean over members of the score vector, each member's detectors fitted to what that member says.

    `scores` names registered detectors, of features or logits, which become the columns; `options` holds further
    arguments of a detector by its name, as in `{"neighbors": {"k": 10}}`; the other arguments hold for all that have
    them. Detectors of the ensemble, such as "entropy", are functions of means over members, not means themselves.

    >>> features = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(0))  # two members
    >>> OutlierScores().fit(features).score(features[:, :5]).shape
    torch.Size([5, 4])
    """

    def __init__(
        self,
        scores: Sequence[str] = DEFAULT_SCORES,
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        standardize: bool = True,
        max_points: int = 20_000,
        block_size: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.scores = tuple(scores)
        self.options = {name: dict(values) for name, values in (options or {}).items()}
        _check_names(self.scores, self.options)
        self.standardize, self.max_points, self.block_size, self.seed = standardize, max_points, block_size, seed
        self.classes: int | None = None
        self.members = nn.ModuleList()
        trial = self._member(0)  # refuses bad settings here, not at fit
        self.reads = tuple(what for what in ("features", "logits") if trial.reads(what))
        self.needs_labels = any(head.needs_labels for head in trial._heads().values())

    def fit(self, features: Any = None, logits: Any = None, labels: Any = None) -> OutlierScores:
        """Fit to features (K, N, D), logits (K, N, C) and labels (N,) of the training data.

        Only what the detectors read must be given, without the first dimension for a single network; a `Predictions`
        in place of the features holds all three.
        """
        features, logits, labels = _parts(features, logits, labels)
        read = {n: _members_first(n, v, reference_values) for n, v in self._read(features, logits).items()}
        _check_alike(read)
        total, count = next(iter(read.values())).shape[:2]
        target = self._labels(labels, count)
        index = subsample_index(count, self.max_points, self.seed)
        if index is not None:
            read = {name: value.index_select(1, index.to(value.device)) for name, value in read.items()}
            target = None if target is None else target[index.to(target.device)]
        self.classes = read["logits"].shape[-1] if "logits" in read else None
        kept = [{name: value[k] for name, value in read.items()} for k in range(total)]
        self.members = nn.ModuleList(
            self._member(k).fit(one.get("features"), one.get("logits"), target) for k, one in enumerate(kept)
        )
        return self

    @torch.no_grad()
    def score(self, features: Any = None, logits: Any = None) -> Tensor:
        """Scores (M, S) of features (K, M, D) and logits (K, M, C), larger = more outlying; or of a `Predictions`."""
        if not self.members:
            raise InputError("features cannot be scored before fit is called")
        features, logits, _ = _parts(features, logits, None)
        mean = next(self.members.buffers())  # of the first member's standardization
        read = self._read(features, logits)
        checked = {name: _members_first(name, value, self._queries, mean) for name, value in read.items()}
        _check_alike(checked)
        for name, value in checked.items():
            if value.shape[0] != len(self.members):
                raise InputError(f"{name} hold {value.shape[0]} members, but {len(self.members)} were fitted")
        split = {name: torch.split(value, self.block_size, dim=1) for name, value in checked.items()}
        return torch.cat([self(**dict(zip(split, blocks))) for blocks in zip(*split.values())])

    def forward(self, features: Tensor | None = None, logits: Tensor | None = None) -> Tensor:
        """`score` without checks and without blocks of queries."""
        found = [
            member(None if features is None else features[k], None if logits is None else logits[k])
            for k, member in enumerate(self.members)
        ]
        return self.pool(torch.stack(found).mean(0))

    def pool(self, mean: Tensor) -> Tensor:
        """Scores (M, S) from the mean over members of what each of `members` returns, (M, E)."""
        member = self.members[0]
        assert isinstance(member, MemberScores)
        return member.pool(mean, self.classes)

    def stacked(self) -> dict[str, Tensor] | None:
        """What was fitted to all members, (K, ...), by the name of the buffer in one of `members`.

        Shorter ones are filled up with zeros where the detector allows it; None where shapes differ otherwise.
        """
        first, found = self.members[0], dict[str, Tensor]()
        assert isinstance(first, MemberScores)
        padded = first.padded()
        for name, _ in first.named_buffers():
            parts = [member.get_buffer(name) for member in self.members]
            if name in padded:
                longest = max(map(len, parts))
                parts = [torch.cat([one, one.new_zeros(longest - len(one), *one.shape[1:])]) for one in parts]
            if len({one.shape for one in parts}) > 1:
                return None
            found[name] = torch.stack(parts)
        return found

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, the number of members and, where logits are read, of classes."""
        names = ("options", "standardize", "max_points", "block_size", "seed")
        own = {name: getattr(self, name) for name in names}
        classes = {} if self.classes is None else {"classes": self.classes}
        return {"scores": list(self.scores), **own, "members": len(self.members), **classes}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> OutlierScores:
        """Rebuild fitted scores from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        if "standardise" in settings:  # as 0.1.0 wrote it
            settings["standardize"] = settings.pop("standardise")
        count, classes = settings.pop("members"), settings.pop("classes", None)
        saved = len({name.split(".")[1] for name in tensors if name.startswith("members.")})
        if count != saved:
            raise InputError(f"tensors do not belong to {count} members: they are of {saved}")
        result = cls(**settings)
        result.classes = None if classes is None else int(classes)
        result.members = nn.ModuleList(result._member(k) for k in range(count))
        result._restore(tensors)._try()
        return result

    def _try(self) -> None:
        """Score one input, so that tensors that do not belong together are refused when they are loaded."""
        mean = next(self.members.buffers())
        zeros = {"features": mean.new_zeros(len(self.members), 1, *mean.shape)}
        zeros["logits"] = mean.new_zeros(len(self.members), 1, self.classes or 1)
        try:
            self.score(**{name: zeros[name] for name in self.reads})
        except (RuntimeError, IndexError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"tensors do not belong to these outlier scores: {reason}") from None

    def _member(self, k: int) -> MemberScores:
        common = {"standardize": self.standardize, "max_points": self.max_points, "block_size": self.block_size}
        heads = {name: self._head(name, {**common, "seed": self.seed + k}) for name in self.scores}
        return MemberScores(heads, rescale=self.standardize, block_size=self.block_size)

    def _head(self, name: str, common: Mapping[str, Any]) -> Detector:
        known = options_of("detector", name)
        own = {option: value for option, value in common.items() if option in known}
        head = build("detector", name, {**own, **self.options.get(name, {})})
        if not isinstance(head, Detector):
            raise InputError(f"detector {name} is a {type(head).__name__}; derive it from calibrant.detectors.Detector")
        return head

    def _read(self, features: Any, logits: Any) -> dict[str, Any]:
        given = {"features": features, "logits": logits}
        for what in self.reads:
            if given[what] is None:
                raise InputError(f"{what} must be given: {self._readers(what)} cannot score without them")
        return {what: given[what] for what in self.reads}

    def _readers(self, what: str) -> str:
        heads = self._member(0)._heads().items()
        return ", ".join(name for name, head in heads if what in head.reads or (what == "labels" and head.needs_labels))

    def _queries(self, name: str, value: Any, mean: Tensor, *, dims: int) -> Tensor:
        """Checked values to score, on the device and in the dtype of `mean`."""
        if name == "features":
            return query_features(value, mean, dims=dims)
        result = checks.finite(name, checks.floating(name, value, dims=dims)).detach()
        if result.shape[-1] != self.classes:
            raise InputError(f"{name} have {result.shape[-1]} columns, but the scores were fitted to {self.classes}")
        return result.to(mean)

    def _labels(self, labels: Any, count: int) -> Tensor | None:
        if not self.needs_labels:
            return None
        if labels is None:
            raise InputError(f"labels must be given: {self._readers('labels')} cannot be fitted without them")
        target = checks.labels("labels", labels)
        if len(target) != count:
            raise InputError(f"labels have {len(target)} entries for {count} training examples")
        return target


def _check_names(scores: Sequence[str], options: Mapping[str, Any]) -> None:
    if not scores:
        raise InputError(f"scores must be some of {', '.join(names('detector'))}, not none")
    for name in scores:
        check("detector", name)
    if len(set(scores)) < len(scores):
        raise InputError(f"scores name one more than once: {list(scores)}")
    foreign = [name for name in options if name not in scores]
    if foreign:
        raise InputError(f"options are given for {foreign}, which are not among the scores {list(scores)}")


def _parts(features: Any, logits: Any, labels: Any) -> tuple[Any, Any, Any]:
    """What a `Predictions` in place of the features holds; `logits` and `labels` win where they are given."""
    if not isinstance(features, Predictions):
        return features, logits, labels
    own = features.logits if logits is None else logits, features.labels if labels is None else labels
    return features.features, *own


def _members_first(name: str, value: Any, check_values: Any, *args: Any) -> Tensor:
    dims = 2 if getattr(value, "ndim", 3) == 2 else 3
    result: Tensor = check_values(name, value, *args, dims=dims)
    return result[None] if dims == 2 else result


def _check_alike(read: Mapping[str, Tensor]) -> None:
    shapes = {name: tuple(value.shape[:2]) for name, value in read.items()}
    if len(set(shapes.values())) > 1:
        raise InputError(f"features and logits must be of the same members and inputs, not {shapes}")
