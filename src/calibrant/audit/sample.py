"""What remedies need of a table: a uniform sample of its rows, drawn while the table is read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.metrics.functional import Array

MOST_ROWS = 50_000
MOST_ENTRIES = 2_000_000
COLUMNS = ("confidence", "correct", "probabilities", "target", "logits")
SMALLEST = float(np.finfo(np.float64).eps)
"""What a probability of 0 counts as in a logarithm, as in scikit-learn: the rounding of float64."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of a table, in its order.

    Attributes:
        total: how many rows the table has.
        confidence: (n,) how sure the system was.
        correct: (n,) bool, whether it was right; None for outliers.
        probabilities: (n, C) of all classes; None where the table has a confidence only.
        target: (n,) the index of the label among the classes; None where it is not known.
        logits: (n, C), where the table has them.
        scores: (n,) each, detectors' columns by name, larger is more outlying.
    """

    total: int
    confidence: Array
    correct: NDArray[np.bool_] | None = None
    probabilities: Array | None = None
    target: NDArray[np.int64] | None = None
    logits: Array | None = None
    scores: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.confidence)

    @property
    def by_class(self) -> bool:
        """Whether all classes and the label are known, and not a confidence only."""
        return self.probabilities is not None and self.target is not None

    @property
    def wrong(self) -> Array:
        """(n,): 1 where the answer was wrong, else 0."""
        if self.correct is None:
            raise InputError("sample has no labels: remedies are measured on labeled predictions")
        return (~self.correct).astype(np.float64)

    @property
    def z(self) -> Array:
        """The logits that a calibrator is fitted to: of the classes (n, C), or of "wrong" and "right" (n, 2)."""
        if self.logits is not None:
            return self.logits
        p = self.probabilities
        p = np.stack([1 - self.confidence, self.confidence], 1) if p is None else p
        z: Array = np.log(np.maximum(p, SMALLEST))
        return z

    @property
    def labels(self) -> NDArray[np.int64]:
        """What belongs to `z`: the class, or 1 for right and 0 for wrong."""
        if self.target is not None and self.probabilities is not None:
            return self.target
        return 1 - self.wrong.astype(np.int64)

    @classmethod
    def of(cls, **columns: Any) -> Sample:
        """All rows of these columns, each an attribute of a sample, up to the largest size of a sample."""
        reservoir = Reservoir()
        reservoir.add(columns)
        return reservoir.sample()


class Reservoir:
    """Draws a sample of at most `rows` rows from a table that comes block by block, in bounded memory.

    Every row gets a random key, and the rows with the smallest keys are kept: each row is as likely to be drawn as any
    other, and the sample depends on the seed alone, not on how the table was cut into blocks. A sample of many classes
    holds fewer rows: at most 2,000,000 probabilities.

    >>> reservoir = Reservoir(3)
    >>> for start in range(0, 100, 10):
    ...     reservoir.add({"confidence": np.arange(start, start + 10) / 100})
    >>> reservoir.sample().total, len(reservoir.sample())
    (100, 3)
    """

    def __init__(self, rows: int = MOST_ROWS, *, seed: int = 0) -> None:
        self.rows, self.total = rows, 0
        self._rng = np.random.default_rng(seed)
        self._limit = 1.0
        self._parts: list[dict[str, NDArray[Any]]] = []

    def add(self, block: Mapping[str, Any]) -> None:
        """Take in some rows: arrays (n,) or (n, C) by the names of a sample's attributes; others are left out."""
        given = {name: block[name] for name in COLUMNS if block.get(name) is not None}
        given |= {f"scores.{name}": value for name, value in (block.get("scores") or {}).items()}
        columns = {name: np.asarray(value) for name, value in given.items()}
        size = len(columns["confidence"])
        columns |= {"key": self._rng.random(size), "row": np.arange(self.total, self.total + size)}
        self.total += size
        kept = columns["key"] < self._limit
        self._parts.append({name: value[kept] for name, value in columns.items()})
        if sum(len(part["key"]) for part in self._parts) > 2 * self._most():
            self._shrink()

    def sample(self) -> Sample:
        """The rows drawn so far."""
        self._shrink()
        (part,) = self._parts
        order = np.argsort(part["row"])
        columns = {name: value[order] for name, value in part.items() if name not in ("key", "row")}
        scores = {name[7:]: _floats(columns.pop(name)) for name in list(columns) if name.startswith("scores.")}
        for name, kind in (("correct", np.bool_), ("target", np.int64)):
            if name in columns:
                columns[name] = columns[name].astype(kind)
        for name in ("confidence", "probabilities", "logits"):
            if name in columns:
                columns[name] = _floats(columns[name])
        return Sample(self.total, **columns, scores=scores)

    def _most(self) -> int:
        wide = [value.shape[1] for value in self._parts[0].values() if value.ndim == 2]
        return int(min([self.rows, *(MOST_ENTRIES // classes for classes in wide)]))

    def _shrink(self) -> None:
        if not self._parts:
            raise InputError("the table holds no rows, so nothing can be drawn from it")
        joined = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        most = self._most()
        if len(joined["key"]) > most:
            kept = np.argpartition(joined["key"], most - 1)[:most]
            joined = {name: value[kept] for name, value in joined.items()}
            self._limit = float(joined["key"].max())
        self._parts = [joined]


def _floats(values: NDArray[Any]) -> Array:
    return values.astype(np.float64, copy=False)
