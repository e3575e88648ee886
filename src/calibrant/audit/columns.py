"""What the columns of a table say: confidence, and whether it was right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.forecasts import Forecast
from calibrant.audit.tables import Table, TableBlock
from calibrant.files.packing import WHOLE_BYTES

FEWEST_DIGITS = 0.005
"""The rounding of a confidence that is written with two digits."""
MOST_NAMES = 10_000
"""How many distinct labels are kept to see whether any of them is ever predicted."""


@dataclass(frozen=True)
class Rows:
    """Rows that were read: confidence (n,) and, where there are labels, `correct` (n,); what was said, for showing.

    `start` is how many rows came before, and `rows` (n,) where these stand in the table. `probabilities` (n, C),
    `target` (n,), the position of the label among the classes, and `logits` (n, C) are there where the table tells
    them; `scores` are detectors' columns, and `slices` those that rows are compared by.
    """

    start: int
    confidence: NDArray[Any]
    correct: NDArray[np.bool_] | None
    predicted: NDArray[Any] | None
    label: NDArray[Any] | None
    done: float
    rows: NDArray[np.int64] | None = None
    probabilities: NDArray[Any] | None = None
    target: NDArray[np.int64] | None = None
    logits: NDArray[Any] | None = None
    scores: dict[str, NDArray[Any]] = field(default_factory=dict)
    slices: dict[str, NDArray[Any]] = field(default_factory=dict)

    def number(self, position: int) -> int:
        """Where the row at `position` of these stands in the table."""
        return self.start + position if self.rows is None else int(self.rows[position])


@dataclass
class Tally:
    """What is noticed while a table is read."""

    rows: int = 0
    left_out: int = 0
    disagreeing: int = 0
    least: float = 1.0
    least_row: int = 0
    divided: int = 0
    right: int = 0
    classes: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    labels: set[str] = field(default_factory=set)
    answers: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Layout:
    """The columns in use; `found` are sentences on what was taken for what, `count` the number of classes, if told."""

    table: Table
    forecast: Forecast
    label: str | None = None
    predicted: str | None = None
    correct: str | None = None
    detectors: tuple[str, ...] = ()
    count: int | None = None
    found: tuple[str, ...] = ()
    slices: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where there are probabilities."""
        return self.forecast.classes

    def read(self) -> Iterator[Rows]:
        """All rows that have a label, block by block; at the end, a confidence that cannot be one is refused."""
        truth = [name for name in (self.correct, self.label) if name is not None]
        asked = [*self.forecast.columns, *self.detectors, *truth, self.predicted]
        needed = list(dict.fromkeys(name for name in asked if name is not None))
        loose = [name for name in self.slices if name not in needed]
        numbers = [] if self.table.typed else [*self.forecast.columns, *self.detectors]
        for block in self.table.blocks([*needed, *loose], numbers, truth, loose):
            self.tally.rows += len(block.rows)
            self.tally.left_out += block.left_out
            if len(block.rows):
                yield self._rows(block)
        if not self.tally.rows:
            without = " with a label" if self.tally.left_out else ""
            raise InputError(f"{self.table.where} holds no rows{without}; write the predictions again")
        self._refuse_impossible()
        self._refuse_strangers()

    @property
    def notes(self) -> list[str]:
        """What was taken for what, where that is not plain, and what was left out."""
        notes, tally = list(self.found), self.tally
        if tally.left_out:
            every = tally.left_out + tally.rows
            notes.append(f"{tally.left_out:,} of {every:,} rows of {self.table.stem} have no label and were left out.")
        if tally.disagreeing:
            notes.append(
                f"In {tally.disagreeing:,} rows column {self.predicted!r} is not the class with the largest probability"
                " (another threshold?); the audit is of the class with the largest probability."
            )
        if tally.divided:
            notes.append(
                f"In {tally.divided:,} rows the probabilities do not sum to 1, as far as their rounding explains; they"
                " were divided by their sum."
            )
        return notes

    def _rows(self, block: TableBlock) -> Rows:
        where = self.table.where
        label, predicted, correct = (
            None if name is None else block.columns[name] for name in (self.label, self.predicted, self.correct)
        )
        right: NDArray[np.bool_] | None = None
        confidence, matrix, logits, divided = self.forecast.read(block.columns, where, block.rows)
        self.tally.divided += divided
        target = None if matrix is None or label is None else self._target(label)
        if matrix is not None:
            index = matrix.argmax(1)
            said = np.asarray(self.classes, object)[index]
            if predicted is not None:
                self.tally.disagreeing += int((self._positions(predicted, index) != index).sum())
            predicted = said
        if correct is not None:
            right = self._zero_one(str(self.correct), correct)
        elif target is not None:
            right = index == target
        elif label is not None and predicted is not None:
            right = self._equal(label, predicted)
            self._note_names(label, predicted, right)
        if matrix is None and predicted is not None:
            self._note_least(confidence, block.rows, [predicted] if label is None else [predicted, label])
        scores = {name: self._detector(name, block) for name in self.detectors}
        sliced = {name: self._slice(name, block) for name in self.slices}
        return Rows(
            block.start, confidence, right, predicted, label, block.done, block.rows, matrix, target, logits, scores,
            sliced,
        )  # fmt: skip

    def _note_least(self, confidence: NDArray[Any], rows: NDArray[np.int64], said: Iterable[NDArray[Any]]) -> None:
        least = int(confidence.argmin())
        if confidence[least] < self.tally.least:
            self.tally.least, self.tally.least_row = float(confidence[least]), int(rows[least])
        for values in said:
            if len(self.tally.classes) * FEWEST_DIGITS < 1:
                self.tally.classes |= set(distinct_texts(values))

    def _note_names(self, label: NDArray[Any], predicted: NDArray[Any], right: NDArray[np.bool_]) -> None:
        tally = self.tally
        tally.right += int(right.sum())
        if not tally.right and max(len(tally.labels), len(tally.answers)) < MOST_NAMES:
            tally.labels |= set(distinct_texts(label))
            tally.answers |= set(distinct_texts(predicted))

    def _refuse_strangers(self) -> None:
        """Labels of which none is ever predicted: most likely they are written in two ways."""
        labels, answers = self.tally.labels, self.tally.answers
        if not labels or self.tally.right or labels & answers or max(len(labels), len(answers)) >= MOST_NAMES:
            return
        raise InputError(
            f"{self.table.where} has the labels {_shown(sorted(labels))} in {self.label!r} and the predictions"
            f" {_shown(sorted(answers))} in {self.predicted!r}, which share no value, so that no answer would be right;"
            " write both alike, or name other columns with --label and --predicted"
        )

    def _refuse_impossible(self) -> None:
        """A confidence below 1 / C, beside a prediction: no largest one of C probabilities is."""
        tally, column = self.tally, self.forecast.columns[0]
        count = self.count or max(len(tally.classes), 1)
        if tally.least >= 1 / count - FEWEST_DIGITS:
            return
        known = sorted(tally.classes)
        seen = "" if self.count else f" (those seen are {_shown(known)})"
        score = f"--score {column} --positive {known[-1] if known else 'CLASS'}"
        one = f" if {column!r} is the probability of one class, give {score};" if count == 2 else ""
        raise InputError(
            f"{self.table.where} has the confidence {tally.least:.4g} in row {tally.least_row}, but the largest of"
            f" {count} probabilities is at least {1 / count:.4g}{seen}:{one}"
            " if there are more classes, say how many with --classes N"
        )

    def _equal(self, label: NDArray[Any], predicted: NDArray[Any]) -> NDArray[np.bool_]:
        if (label.dtype.kind in "OUS") != (predicted.dtype.kind in "OUS"):
            where = f"{self.table.where}: {self.label!r} and {self.predicted!r}"
            raise InputError(f"{where} are text and numbers; write both alike")
        return np.asarray(label == predicted, bool)

    def _target(self, label: NDArray[Any]) -> NDArray[np.int64]:
        """The position of each label among the classes."""
        texts, inverse = _texts(label)
        return np.asarray([self._known(text) for text in texts], np.int64)[inverse]

    def _positions(self, predicted: NDArray[Any], otherwise: NDArray[np.int64]) -> NDArray[np.int64]:
        """The position of each prediction among the classes, or that of `otherwise` where it is none of them."""
        texts, inverse = _texts(predicted)
        found = [self._position(text) for text in texts]
        place = np.asarray([-1 if one is None else one for one in found], np.int64)[inverse]
        return np.where(place < 0, otherwise, place)

    def _position(self, text: str) -> int | None:
        """By name, or where the names are no numbers also by position."""
        names = self.classes
        if self.forecast.binary:
            return int(names[1] in (text, TWINS.get(text)))
        for known in (text, TWINS.get(text)):
            if known in names:
                return names.index(known)
        by_place = text.isdigit() and int(text) < len(names) and not any(name.isdigit() for name in names)
        return int(text) if by_place else None

    def _known(self, text: str) -> int:
        place, positive = self._position(text), self.classes[1]
        if place is None:
            raise InputError(
                f"{self.table.where} has the label {text!r}, but the classes are {_shown(self.classes)};"
                " give their names in the order of the probabilities with --classes (in Python, classes=[...])"
            )
        if self.forecast.binary and not place:
            self.tally.others.add(text)
        if len(self.tally.others) > 1:
            raise InputError(
                f"{self.table.where} has the labels {_shown(sorted(self.tally.others))} beside the positive class"
                f" {positive!r}, but {self.forecast.columns[0]!r} tells two classes apart; name the positive one of two"
                " with --positive, or give the probabilities of all classes"
            )
        return place

    def _zero_one(self, name: str, values: NDArray[Any]) -> NDArray[np.bool_]:
        if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
            raise InputError(f"{self.table.where}: column {name!r} must hold only 0 (wrong) and 1 (right)")
        return values.astype(bool)

    def _detector(self, name: str, block: TableBlock) -> NDArray[np.float64]:
        values = block.columns[name]
        if values.ndim != 1 or values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise InputError(f"{self.table.where}: column {name!r} of --detector must hold finite numbers in every row")
        return values.astype(np.float64)

    def _slice(self, name: str, block: TableBlock) -> NDArray[Any]:
        values = block.columns[name]
        if values.ndim != 1:
            raise InputError(
                f"{self.table.where}: column {name!r} of --slice must hold one value for each row, not lists"
            )
        return values


TWINS = {"True": "1", "False": "0", "1": "True", "0": "False"}


def class_text(value: Any) -> str:
    """A label as text: whole numbers without a point.

    >>> class_text(3.0), class_text("cat"), class_text(True)
    ('3', 'cat', 'True')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def class_of(column: str) -> str:
    """The class that a column is called after, as `class_text` writes it.

    >>> class_of("1.0"), class_of("FALSE"), class_of("cat")
    ('1', 'False', 'cat')
    """
    if column.lower() in ("true", "false"):
        return column.capitalize()
    return re.sub(r"^(-?\d+)\.0+$", r"\1", column)


def distinct_texts(values: NDArray[Any]) -> list[str]:
    """The distinct labels as text, sorted."""
    known = set(values.tolist()) if values.dtype.kind == "O" else np.unique(values).tolist()
    return sorted(map(class_text, known))


def text_array(texts: Sequence[str]) -> NDArray[np.str_]:
    """`texts` as an array, whose cells are all as wide as the longest one; refused if it would have more than 1 GB."""
    longest = max(map(len, texts), default=0)
    if 4 * longest * len(texts) > WHOLE_BYTES:
        raise InputError(
            f"the labels have up to {longest:,} characters, too many to compare {len(texts):,} rows; shorten them"
        )
    return np.array(texts)


def _texts(values: NDArray[Any]) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct labels as text, and which of them each is."""
    if values.dtype.kind == "O":
        values = text_array([str(value) for value in values.tolist()])
    known, inverse = np.unique(values.astype(str) if values.dtype.kind == "S" else values, return_inverse=True)
    return [class_text(value) for value in known.tolist()], inverse


def _shown(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(shown[:6]) + (", ..." if len(shown) > 6 else "")
