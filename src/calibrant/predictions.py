"""What a model says of inputs, and what is done about it: one record of each, from the ensemble to the audit.

May import: checks, adapters, metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError, checks
from calibrant.metrics.arguments import largest

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Index = int | slice | Tensor | Sequence[int]
_BY_INPUT = ("confidence", "predicted", "labels", "selection", "trust", "ood_score", "count", "probabilities")
_BY_MEMBER = ("logits", "features")


class FittedDetectors(Protocol):
    """Fitted detectors: their names, and their scores (N, S) of predictions."""

    @property
    def scores(self) -> tuple[str, ...]:
        """The names of the columns."""

    def score(self, predictions: Predictions, /) -> Tensor:
        """Scores (N, S), larger = more outlying."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of N inputs. Made by `from_logits`, `from_probabilities`, or from a confidence alone.

    Attributes:
        confidence: (N,) in [0, 1], the largest probability.
        predicted: (N,) the class that has it.
        labels: (N,) the truth; None where nobody knows it, as for outliers.
        selection: (N,) a selector's output, larger is accepted first; None: the confidence decides.
        trust: (N,) in [0, 1], the probability that the answer is right in a stream that may contain outliers; None
            where no rule estimates it.
        ood_score: (N,) larger is more outlying; None: 1 - confidence.
        scores: (N,) each, detectors' scores by name, larger is more outlying.
        count: (N,) how many inputs each row stands for, where a long table was summed up; None: one.
        probabilities: (N, C) mean over members.
        logits: (K, N, C) of K members.
        features: (K, N, D) of K members.
        calibrator: fingerprint of the calibrator that the probabilities went through; "none": the network's own.

    >>> predictions = Predictions([0.9, 0.6], [3, 1], [3, 2]).numpy()
    >>> predictions.correct, predictions.acceptance
    (array([ True, False]), array([0.9, 0.6]))
    """

    confidence: Any
    predicted: Any
    labels: Any = None
    selection: Any = None
    trust: Any = None
    ood_score: Any = None
    scores: Mapping[str, Any] = field(default_factory=dict)
    count: Any = None
    probabilities: Any = None
    logits: Any = None
    features: Any = None
    calibrator: str = "none"

    @classmethod
    def from_logits(cls, logits: Tensor, features: Tensor | None = None, labels: Any = None) -> Predictions:
        """Of members' logits (K, N, C): p(y | x) = 1/K sum_k softmax(logits_k)_y; (K, N, 1) are two classes."""
        from calibrant.adapters.outputs import as_classes

        logits = as_classes(logits)
        probabilities = logits[0].softmax(-1)
        for member in logits[1:]:
            probabilities += member.softmax(-1)
        return replace(cls.from_probabilities(probabilities / len(logits), labels), logits=logits, features=features)

    @classmethod
    def from_probabilities(cls, probabilities: Any, labels: Any = None, **more: Any) -> Predictions:
        """Of probabilities (N, C), a tensor or an array."""
        return cls(largest(probabilities), probabilities.argmax(-1), labels, probabilities=probabilities, **more)

    def __len__(self) -> int:
        return len(self.confidence)

    def __getitem__(self, index: slice | Tensor | Sequence[int]) -> Predictions:
        """The rows at `index`."""
        return self._map(lambda value: value[index], lambda value: value[:, index])

    @classmethod
    def concatenate(cls, parts: Sequence[Predictions]) -> Predictions:
        """One record of several of the same form, in their order; members' logits and features are left out."""
        if len({part.calibrator for part in parts}) > 1:
            raise InputError("parts went through different calibrators; calibrate them alike first")
        joined = {name: [getattr(part, name) for part in parts] for name in _BY_INPUT}
        scores = {name: _joined([part.scores[name] for part in parts]) for name in parts[0].scores}
        together = {name: None if values[0] is None else _joined(values) for name, values in joined.items()}
        return cls(**together, scores=scores, calibrator=parts[0].calibrator)

    def to(self, device: torch.device | str) -> Predictions:
        """The same on `device`."""
        return self._map(lambda value: value.to(device))

    def numpy(self) -> Predictions:
        """Checked, as NumPy arrays, for measures: with an `ood_score`, without probabilities, logits and features."""
        level = checks.measured.unit_interval("confidence", self.confidence)
        arrays: dict[str, Any] = {"confidence": _aligned("confidence", level, level)}
        for name in ("predicted", "labels", "count"):
            value = getattr(self, name)
            arrays[name] = None if value is None else _aligned(name, checks.measured.labels(name, value), level)
        for name in ("selection", "trust", "ood_score"):
            value = getattr(self, name)
            arrays[name] = None if value is None else _real(name, value, level)
        if arrays["ood_score"] is None:
            arrays["ood_score"] = 1 - arrays["confidence"].astype(np.float64)
        if arrays["count"] is not None and (arrays["count"] < 1).any():
            raise InputError("count must be at least 1 in every row; leave out rows that stand for nothing")
        scores = {name: _real(f"scores[{name!r}]", value, level) for name, value in self.scores.items()}
        return Predictions(**arrays, scores=scores, calibrator=self.calibrator)

    @property
    def acceptance(self) -> Any:
        """(N,): what a threshold is compared with, the selector's output or else the confidence."""
        chosen = self.confidence if self.selection is None else self.selection
        return chosen.astype(np.float64) if isinstance(chosen, np.ndarray) else chosen

    @property
    def forecast(self) -> Any:
        """(N,): the stated probability that the answer is right: the trust, or else the confidence."""
        return self.confidence if self.trust is None else self.trust

    @property
    def correct(self) -> Any:
        """(N,) bool: whether the predicted class is the label."""
        return self.predicted == self._known_labels()

    @property
    def cross_entropy(self) -> Tensor:
        """(N,): -log p(y | x)."""
        import torch

        own: Tensor = self.probabilities.gather(1, self._known_labels()[:, None]).squeeze(1)
        return -own.clamp_min(torch.finfo(own.dtype).tiny).log()

    @property
    def weights(self) -> NDArray[np.float64]:
        """(N,): how much each row counts."""
        return np.ones(len(self)) if self.count is None else self.count.astype(np.float64)

    @property
    def total(self) -> int:
        """How many inputs the rows stand for."""
        return len(self) if self.count is None else int(self.count.sum())

    def columns(self, names: Sequence[str] | None = None) -> Tensor:
        """(N, S): the scores called `names`, all by default, in this order."""
        chosen = [self.scores[name] for name in (self.scores if names is None else names)]
        import torch

        return torch.stack(chosen, 1) if chosen else self.confidence.new_empty(len(self), 0)

    def with_scores(self, scorer: FittedDetectors) -> Predictions:
        """With the scores of `scorer`, fitted `detectors.OutlierScores`, beside those that there are."""
        return replace(self, scores={**self.scores, **dict(zip(scorer.scores, scorer.score(self).unbind(1)))})

    def _known_labels(self) -> Any:
        if self.labels is None:
            raise InputError("labels are missing: the data that was predicted has none")
        return self.labels

    def _map(self, each: Callable[[Any], Any], of_members: Callable[[Any], Any] | None = None) -> Predictions:
        """`each` applied to what has one row per input, and `of_members` to what has the members first."""
        pairs = [(name, each) for name in _BY_INPUT] + [(name, of_members or each) for name in _BY_MEMBER]
        changed = {name: apply(getattr(self, name)) for name, apply in pairs if getattr(self, name) is not None}
        return replace(self, **changed, scores={name: each(value) for name, value in self.scores.items()})


@dataclass(frozen=True, eq=False)
class Decision:
    """What is done about `predictions` of N inputs: whether each answer is accepted.

    Attributes:
        predictions: what the model says, whether the answer is accepted or not.
        accepted: (N,) bool, whether the answer should be used; False means to abstain. `selective/rule.py` decides.
        members: (N,) how many members were evaluated.
        threshold: `acceptance` is accepted where it is at least this.
        classes: names of the classes, if they have any.
    """

    predictions: Predictions
    accepted: Tensor
    members: Tensor
    threshold: float
    classes: tuple[str, ...] | None = None

    @property
    def predicted(self) -> Tensor:
        """(N,) the class with the largest probability."""
        value: Tensor = self.predictions.predicted
        return value

    @property
    def confidence(self) -> Tensor:
        """(N,) that probability."""
        value: Tensor = self.predictions.confidence
        return value

    @property
    def trust(self) -> Tensor | None:
        """(N,) the probability that the answer is right in a stream with outliers; None where the rule has none."""
        value: Tensor | None = self.predictions.trust
        return value

    @property
    def probabilities(self) -> Tensor:
        """(N, C) mean over members."""
        value: Tensor = self.predictions.probabilities
        return value

    @property
    def acceptance(self) -> Tensor:
        """(N,) what is compared with the threshold: the selector's output, or the confidence without a selector."""
        value: Tensor = self.predictions.acceptance
        return value

    @property
    def ood_score(self) -> Tensor:
        """(N,) larger = more outlying; 1 - confidence unless another was chosen."""
        value: Tensor = self.predictions.ood_score
        return value

    @property
    def scores(self) -> Mapping[str, Tensor]:
        """(N,) each, detectors' scores by name."""
        return self.predictions.scores

    def __len__(self) -> int:
        return len(self.predictions)

    def __getitem__(self, index: Index) -> Decision:
        """The decisions at `index`; an integer gives a batch of one."""
        if isinstance(index, int):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} is out of range for {len(self)} decisions")
            index = slice(index, index + 1 or None)
        rows = self.predictions[index]
        return replace(self, predictions=rows, accepted=self.accepted[index], members=self.members[index])

    def __iter__(self) -> Iterator[Decision]:
        return (self[position] for position in range(len(self)))

    @classmethod
    def concatenate(cls, parts: Sequence[Decision]) -> Decision:
        """One decision of several, in their order."""
        if not parts:
            raise InputError("parts is empty")
        return replace(
            parts[0],
            predictions=Predictions.concatenate([part.predictions for part in parts]),
            accepted=_joined([part.accepted for part in parts]),
            members=_joined([part.members for part in parts]),
        )

    def to(self, device: torch.device | str) -> Decision:
        """The same on `device`."""
        moved = self.predictions.to(device)
        return replace(self, predictions=moved, accepted=self.accepted.to(device), members=self.members.to(device))

    @property
    def coverage(self) -> float:
        """The fraction of inputs that are accepted."""
        return float(self.accepted.float().mean())

    @property
    def mean_members(self) -> float:
        """The average number of members evaluated for an input."""
        return float(self.members.float().mean())

    def table(self, *, probabilities: bool = False) -> dict[str, list[Any]]:
        """Columns of plain Python values, for JSON, pandas or Arrow; class names in place of indices where known.

        With `probabilities` there is a column `p_CLASS` for every class.
        """
        names = self.classes or tuple(str(index) for index in range(self.probabilities.shape[1]))
        predicted = self.predicted.tolist()
        columns: dict[str, list[Any]] = {
            "predicted": [names[index] for index in predicted] if self.classes else predicted,
            "confidence": self.confidence.tolist(),
            **({} if self.trust is None else {"trust": self.trust.tolist()}),
            "accepted": self.accepted.tolist(),
            "ood_score": self.ood_score.tolist(),
            "acceptance": self.acceptance.tolist(),
            "members": self.members.tolist(),
        }
        columns |= {f"outlier_{name}": column.tolist() for name, column in self.scores.items()}
        if probabilities:
            columns |= {f"p_{name}": column.tolist() for name, column in zip(names, self.probabilities.unbind(1))}
        return columns


def _joined(parts: Sequence[Any]) -> Any:
    if not checks.is_tensor(parts[0]):
        return np.concatenate(parts)
    import torch

    return torch.cat(list(parts))


def _aligned(name: str, value: Any, confidence: Any) -> NDArray[Any]:
    checks.same_length(name, value, "confidence", confidence)
    result: NDArray[Any] = value.detach().cpu().numpy() if checks.is_tensor(value) else value
    return result


def _real(name: str, value: Any, confidence: Any) -> NDArray[Any]:
    return _aligned(name, checks.finite(name, checks.measured.floating(name, value, dims=1)), confidence)
