"""What a system said of data sets: the one record that experiments write and that tables, figures and pages read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from calibrant import checks
from calibrant.metrics.functional import Array

FORMAT = 1
_ARRAYS = ("confidence", "predicted", "label", "selection", "ood_score", "scores", "count")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a system said of the N inputs of one data set.

    `confidence` (N,) in [0, 1] and `predicted` (N,), the class decided for; `label` (N,), None where there is none
    (OOD). `selection` (N,) is the selector's output g, larger is accepted first; None: the confidence decides.
    `ood_score` (N,), larger is more outlying, by default 1 - confidence. `scores` (N, S) are outlier scores, named by
    `score_names`. `count` (N,): how many inputs each row stands for, where a large table was summed up; None: one.

    >>> outcome = Outcome([0.9, 0.6], [3, 1], [3, 2])
    >>> outcome.correct, outcome.acceptance
    (array([ True, False]), array([0.9, 0.6]))
    """

    confidence: Any
    predicted: Any
    label: Any = None
    selection: Any = None
    ood_score: Any = None
    scores: Any = None
    score_names: Sequence[str] = ()
    count: Any = None

    def __post_init__(self) -> None:
        level = checks.unit_interval("confidence", self.confidence)
        found: dict[str, Any] = {"confidence": level.detach().cpu().numpy()}
        for name in ("predicted", "label", "count"):
            value = getattr(self, name)
            found[name] = None if value is None else _aligned(name, checks.labels(name, value), level)
        for name, dims in (("selection", 1), ("ood_score", 1), ("scores", 2)):
            value = getattr(self, name)
            if value is not None:
                value = _aligned(name, checks.finite(name, checks.floating(name, value, dims=dims)), level)
            found[name] = value
        if found["ood_score"] is None:
            found["ood_score"] = 1 - found["confidence"].astype(np.float64)
        columns = 0 if found["scores"] is None else found["scores"].shape[1]
        if len(self.score_names) != columns:
            raise ValueError(f"score_names has {len(self.score_names)} names, but scores has {columns} columns")
        if found["count"] is not None and (found["count"] < 1).any():
            raise ValueError("count must be at least 1 in every row; leave out rows that stand for nothing")
        for name, value in found.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "score_names", tuple(self.score_names))

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def total(self) -> int:
        """How many inputs the rows stand for."""
        return len(self) if self.count is None else int(self.count.sum())

    @property
    def weights(self) -> Array:
        """(N,): how much each row counts, in float64."""
        return np.ones(len(self)) if self.count is None else self.count.astype(np.float64)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(N,): whether the decision equals the label."""
        if self.label is None:
            raise ValueError("label is missing: of this data set nobody knows what is right")
        right: NDArray[np.bool_] = self.predicted == self.label
        return right

    @property
    def acceptance(self) -> Array:
        """(N,): what decides whether an input is accepted, the selector's output or else the confidence."""
        chosen: Array = (self.confidence if self.selection is None else self.selection).astype(np.float64)
        return chosen


def _aligned(name: str, value: Tensor, confidence: Tensor) -> NDArray[Any]:
    checks.same_length(name, value, "confidence", confidence)
    result: NDArray[Any] = value.detach().cpu().numpy()
    return result


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One trained system on its test data: `id`, any number of `ood` sets by name, and where there is one `validation`.

    `system` is its name, for a scheme the scheme's ("SCBNN-OCM"); systems that differ only in `seed` are averaged.
    Thresholds for a coverage come from `validation` if it is given, else from `id`. `metadata` holds JSON values.
    """

    system: str
    seed: int
    id: Outcome
    ood: Mapping[str, Outcome] = field(default_factory=dict)
    validation: Outcome | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.id.label is None:
            raise ValueError("id must have labels: without them nothing can be said about accuracy or calibration")

    def save(self, path: str | Path) -> str:
        """Write everything to one NPZ file, whole or not at all, without pickle; returns its SHA-256."""
        from calibrant.files import write_bytes

        parts = {"id": self.id, "validation": self.validation}
        parts.update({f"ood{number}": outcome for number, outcome in enumerate(self.ood.values())})
        arrays = {
            f"{part}.{name}": getattr(outcome, name)
            for part, outcome in parts.items()
            if outcome is not None
            for name in _ARRAYS
            if getattr(outcome, name) is not None
        }
        header = {
            "format": FORMAT,
            "system": self.system,
            "seed": self.seed,
            "ood": list(self.ood),
            "score_names": {part: list(outcome.score_names) for part, outcome in parts.items() if outcome},
            "metadata": dict(self.metadata),
        }
        content = io.BytesIO()
        np.savez_compressed(content, header=np.array(json.dumps(header, allow_nan=False)), **arrays)
        return write_bytes(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Evaluation:
        """Read what `save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(str(arrays["header"]))
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']}, this version reads {FORMAT}")
        except FileNotFoundError:
            raise ValueError(f"{path} does not exist; check the path") from None
        except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a saved evaluation ({error}); evaluate the system again") from None

        def outcome(part: str) -> Outcome:
            values = {name: arrays.get(f"{part}.{name}") for name in _ARRAYS}
            return Outcome(score_names=header["score_names"][part], **values)

        return cls(
            header["system"],
            header["seed"],
            outcome("id"),
            {name: outcome(f"ood{number}") for number, name in enumerate(header["ood"])},
            outcome("validation") if "validation.confidence" in arrays else None,
            header["metadata"],
        )


def by_system(evaluations: Sequence[Evaluation]) -> dict[str, list[Evaluation]]:
    """The evaluations of each system, in the order of their first appearance; refused if they are of different data."""
    groups: dict[str, list[Evaluation]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation.system, []).append(evaluation)
    if not groups:
        raise ValueError("evaluations is empty: there is nothing to report")
    for system, group in groups.items():
        first = group[0]
        for other in group[1:]:
            same = np.array_equal(first.id.label, other.id.label) and list(first.ood) == list(other.ood)
            if not (same and all(len(first.ood[name]) == len(other.ood[name]) for name in first.ood)):
                raise ValueError(
                    f"evaluations of {system} with seeds {first.seed} and {other.seed} are of different data;"
                    " give each its own system name"
                )
    return groups
