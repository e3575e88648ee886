"""What a classifier does with each class: how often it is right, how sure it is, and what it takes for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError, checks
from calibrant.audit.grouped import calibration_errors, gap_interval, sums
from calibrant.metrics import Interval
from calibrant.metrics.arguments import confidence_and_correct
from calibrant.metrics.bins import bin_index
from calibrant.metrics.functional import array
from calibrant.metrics.proportion import proportion

PAIRS = 10


@dataclass(frozen=True)
class ClassRow:
    """One class: `count` rows have its label, `predicted` rows were answered with it.

    `recall` is the accuracy of the rows with its label, `precision` that of the answers. `confidence` is the mean over
    the answers, `gap` that less the precision (positive: overconfident), `ece` their ECE. Limits are NaN where there
    are too few rows for an interval.
    """

    name: str
    count: int
    predicted: int
    recall: Interval
    precision: Interval
    confidence: float
    gap: Interval
    ece: Interval


@dataclass(frozen=True)
class ConfusionPair:
    """Rows of the class `label` that were answered with `predicted`: how many, which share of the class, how surely."""

    label: str
    predicted: str
    count: int
    share: float
    confidence: float


@dataclass(frozen=True)
class ClassTable:
    """The classes in the order of their names or numbers, and the most frequent confusions first."""

    classes: tuple[ClassRow, ...]
    confusions: tuple[ConfusionPair, ...]

    def records(self) -> list[dict[str, Any]]:
        """One flat dictionary per class, for a frame: `recall`, `recall_low`, `recall_high` and so on."""
        return [flat_record(row) for row in self.classes]

    @property
    def worst(self) -> tuple[ClassRow, ...]:
        """The classes by their recall, the lowest first; those without a row last."""
        return tuple(sorted(self.classes, key=lambda row: (row.count == 0, row.recall.estimate)))


def class_table(
    labels: Any, predicted: Any = None, confidence: Any = None, *, probabilities: Any = None, bins: int = 15,
    pairs: int = PAIRS,
) -> ClassTable:  # fmt: skip
    """A row for each class that occurs as a label or as an answer.

    `labels` and `predicted` (n,), numbers or text; `confidence` (n,) of the answers in [0, 1]. With `probabilities`
    (n, C) both are taken from them, and labels are the columns' numbers. Recall and precision have Wilson's interval,
    the gap a normal one, the ECE that of `norm_limits`, the last two from 30 answers on. The intervals are of each
    class by itself: of many classes some lie outside theirs by chance.

    >>> table = class_table(["cat", "dog", "dog", "dog"], ["cat", "cat", "dog", "cat"], [0.9, 0.6, 0.8, 0.6])
    >>> [(row.name, row.count, row.recall.estimate, row.precision.estimate) for row in table.classes]
    [('cat', 1, 1.0, 0.333), ('dog', 3, 0.333, 1.0)]
    >>> table.confusions[0]
    ConfusionPair(label='dog', predicted='cat', count=2, share=0.667, confidence=0.6)
    """
    if probabilities is not None:
        matrix = array(checks.measured.probabilities("probabilities", probabilities))
        predicted, confidence = matrix.argmax(1), matrix.max(1)
    if predicted is None or confidence is None:
        raise InputError("predicted and confidence are missing: give both, or probabilities (n, C)")
    truth, said = _values(labels), _values(predicted)
    if truth.ndim != 1 or truth.shape != said.shape:
        raise InputError(f"labels has shape {truth.shape}, but predicted has {said.shape}; give one entry per row")
    if (truth.dtype.kind in "OUS") != (said.dtype.kind in "OUS"):
        raise InputError("labels and predicted are text and numbers; write both alike")
    names, index = np.unique(np.concatenate([truth, said]), return_inverse=True)
    label, answer = index[: len(truth)], index[len(truth) :]
    level, right = confidence_and_correct(confidence, label == answer)
    value, size = array(level), len(names)
    count, given, hits = sums(label, size), sums(answer, size), sums(label, size, right)
    residual = right - value
    totals, squares, sure = (sums(answer, size, part) for part in (-residual, residual**2, value))
    place = np.asarray(bin_index(level, bins), np.int64)
    errors = calibration_errors(answer, size, place, value, right, bins)
    rows = [
        ClassRow(
            str(name), int(count[c]), int(given[c]), proportion(hits[c], count[c]), proportion(hits[c], given[c]),
            float(sure[c] / given[c]) if given[c] else float("nan"),
            gap_interval(totals[c], squares[c], hits[c], given[c]), errors[c] if given[c] else proportion(0, 0),
        )
        for c, name in enumerate(names.tolist())
    ]  # fmt: skip
    return ClassTable(tuple(rows), _confusions(names, label, answer, value, count, pairs))


def _confusions(
    names: NDArray[Any], label: NDArray[Any], answer: NDArray[Any], confidence: Any, count: Any, pairs: int
) -> tuple[ConfusionPair, ...]:
    wrong = label != answer
    cell, inverse = np.unique(label[wrong] * len(names) + answer[wrong], return_inverse=True)
    often, sure = sums(inverse, len(cell)), sums(inverse, len(cell), confidence[wrong])
    found = []
    for position in np.argsort(-often, kind="stable")[:pairs].tolist():
        truth, said = divmod(int(cell[position]), len(names))
        many = often[position]
        found.append(
            ConfusionPair(
                str(names[truth]), str(names[said]), int(many), float(many / count[truth]), float(sure[position] / many)
            )
        )
    return tuple(found)


def _values(values: Any) -> NDArray[Any]:
    """An array of labels: a tensor's values, text as text."""
    result = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    return result.astype(str) if result.dtype.kind == "O" else result


def flat_record(row: Any) -> dict[str, Any]:
    """A dataclass as one level of values: an interval becomes three, None standing for NaN."""
    record: dict[str, Any] = {}
    for name, value in vars(row).items():
        if isinstance(value, Interval):
            record |= {name: value.estimate, f"{name}_low": value.low, f"{name}_high": value.high}
        else:
            record[name] = value
    return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in record.items()}
