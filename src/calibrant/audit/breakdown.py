"""Which classes and which slices of a table are worst: from a sample of its rows, for terminal, JSON and page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.class_table import ClassTable, class_table
from calibrant.audit.columns import Rows, class_text, text_array
from calibrant.audit.sample import Reservoir
from calibrant.audit.slices import SliceTable, slices
from calibrant.metrics import Interval
from calibrant.report.page import Section

SHOWN = 20
FEWEST_ROWS = 30
"""Classes with fewer rows are not called the worst one."""


@dataclass(frozen=True)
class Breakdown:
    """The class table and the slices of a table of `total` rows, made of a sample of `size` of them.

    `classes` is None where labels or predictions are not known, `slices` where no column was named.
    """

    classes: ClassTable | None
    slices: SliceTable | None
    size: int
    total: int

    @property
    def sentences(self) -> list[str]:
        """The worst class, the most frequent confusion, and what can be said of the slices."""
        told = [] if self.classes is None else list(_class_sentences(self.classes))
        return told if self.slices is None else [*told, self.slices.sentence]

    @property
    def limits(self) -> list[str]:
        """What cannot be told."""
        told = []
        if self.size < self.total:
            told.append(f"Classes and slices are of {self.size:,} of the {self.total:,} rows, drawn at random.")
        few = [] if self.classes is None else [row for row in self.classes.classes if row.count < FEWEST_ROWS]
        if few:
            names = _listed([row.name for row in few])
            told.append(f"Of {names} there are fewer than {FEWEST_ROWS} rows, too few to tell how they fare.")
        if self.slices is not None and self.slices.small:
            small, least = self.slices.small, self.slices.least
            told.append(f"Nothing is said of slices with fewer than {least} rows, of which there are {small:,}.")
        return told

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        found: dict[str, Any] = {"classes": None, "confusions": None, "slices": None}
        if self.classes is not None:
            pairs = [dict(vars(one)) for one in self.classes.confusions]
            found |= {"classes": self.classes.records(), "confusions": pairs}
        if self.slices is not None:
            found["slices"] = self.slices.records()
        return {**found, "size": self.size, "total": self.total, "sentences": self.sentences}

    def sections(self) -> Iterator[Section]:
        """As the page shows them."""
        if self.slices is not None:
            yield _slice_section(self.slices)
        if self.classes is not None:
            yield _class_section(self.classes)
            if self.classes.confusions:
                yield _confusion_section(self.classes)


class GroupDraw:
    """Collects what a breakdown needs while a table is read: a sample of at most 50,000 rows."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._names, self._drawn = np.asarray(classes, object), Reservoir()

    def add(self, rows: Rows) -> None:
        """Take in some rows."""
        said, truth = rows.predicted, rows.label
        if rows.target is not None:
            truth = self._names[rows.target]
        known = {"said": said, "truth": truth} if said is not None and truth is not None else {}
        columns = {f"slice {name}": value for name, value in rows.slices.items()}
        self._drawn.draw({"confidence": rows.confidence, "correct": rows.correct, **known, **columns})

    @cached_property
    def columns(self) -> dict[str, NDArray[Any]]:
        """The rows that were drawn: confidence, whether right and, where known, what was said and the truth."""
        return self._drawn.columns()

    def breakdown(self, bins: int) -> Breakdown:
        """What the rows say."""
        columns = self.columns
        confidence, right = columns["confidence"].astype(np.float64), columns["correct"].astype(bool)
        found = None
        if "said" in columns:
            truth, said = (_named(columns[name]) for name in ("truth", "said"))
            agree = np.array_equal(truth == said, right)  # else another column says what is right
            found = class_table(truth, said, confidence, bins=bins) if agree else None
        sliced = {name[6:]: values for name, values in columns.items() if name.startswith("slice ")}
        compared = slices(sliced, confidence, right) if sliced else None
        return Breakdown(found, compared, len(right), self._drawn.total)


def _named(values: NDArray[Any]) -> NDArray[Any]:
    """Labels as they are shown: numbers as numbers, whole ones without a point, all else as text."""
    if values.dtype.kind == "O":
        return text_array([class_text(value) for value in values.tolist()])
    return values.astype(np.int64) if values.dtype.kind == "f" and (values == np.rint(values)).all() else values


def _class_sentences(table: ClassTable) -> Iterator[str]:
    enough = [row for row in table.worst if row.count >= FEWEST_ROWS]
    if not enough or enough[0].recall.estimate == 1:
        return
    worst, pairs = enough[0], [pair for pair in table.confusions if pair.label == enough[0].name]
    taken = f", and {pairs[0].count:,} are taken for {pairs[0].predicted}" if pairs else ""
    yield (
        f"Of {len(table.classes):,} classes, {worst.name} is recognized least: {in_percent(worst.recall)} of its"
        f" {worst.count:,} rows{taken}."
    )
    often = table.confusions[0]
    if often.label != worst.name:
        yield f"The most frequent confusion is {often.label} taken for {often.predicted}, in {often.count:,} rows."


def _class_section(table: ClassTable) -> Section:
    many = len(table.classes)
    rows = [
        (
            row.name,
            row.count,
            row.predicted,
            _pair(row.recall),
            _pair(row.precision),
            _share(row.confidence),
            _points(row.gap),
        )
        for row in table.worst[:SHOWN]
    ]
    told = ["Lowest recall first. Precision, mean confidence and gap are those of the answers that name the class."]
    if many > SHOWN:
        told.append(f"{SHOWN} of {many:,} classes are shown; calibrant audit --json has all.")
    heads = ("Class", "Rows", "Answers", "Recall, %", "Precision, %", "Mean confidence, %", "Gap, points")
    return Section("Classes", told, heads, rows, place="groups")


def _confusion_section(table: ClassTable) -> Section:
    rows = [
        (pair.label, pair.predicted, pair.count, _share(pair.share), _share(pair.confidence))
        for pair in table.confusions
    ]
    heads = ("Class", "Taken for", "Rows", "Share of the class, %", "Mean confidence, %")
    return Section("Confusions", ["The most frequent first."], heads, rows, place="groups")


def _slice_section(table: SliceTable) -> Section:
    rows = [
        (
            f"{one.column} = {one.value}", one.count, _pair(one.accuracy), _share(one.confidence), _points(one.gap),
            "worse" if one.stands_out else "not measurably worse", _p_value(one.adjusted),
        )
        for one in table.slices[:SHOWN]
    ]  # fmt: skip
    told = [
        table.sentence,
        "Accuracy and gap (mean confidence minus accuracy) are those of the slice itself. The last two columns compare"
        " it with all other rows; p is the probability that chance alone makes some slice this much worse (Holm's"
        " method).",
    ]
    if len(table.slices) > SHOWN:
        told.append(f"{SHOWN} of {len(table.slices):,} slices are shown; calibrant audit --json has all.")
    heads = ("Slice", "Rows", "Accuracy, %", "Mean confidence, %", "Gap, points", "Compared with the rest", "p")
    return Section("Slices", told, heads, rows, place="groups")


def _p_value(value: float) -> tuple[str, str]:
    return "< 0.001" if value < 0.001 else f"{value:.3f}", ""


def _share(value: float) -> tuple[str, str] | None:
    """In percent; what is below 1 is not shown as 100."""
    digits = next((digits for digits in (1, 2, 3) if round(100 * value, digits) < 100), 4) if value < 1 else 1
    return None if np.isnan(value) else (f"{100 * value:.{digits}f}", "")


def _pair(value: Interval) -> tuple[str, str]:
    if np.isnan(value.estimate):
        return "–", ""
    return f"{100 * value.shown:.1f}", "" if np.isnan(value.low) else f"{100 * value.low:.1f} to {100 * value.high:.1f}"


def _points(value: Interval) -> tuple[str, str]:
    if np.isnan(value.estimate):
        return "–", ""
    limits = "" if np.isnan(value.low) else f"{100 * value.low:+.1f} to {100 * value.high:+.1f}"
    return f"{100 * value.estimate:+.1f}", limits


def in_percent(value: Interval) -> str:
    """Such as "97.2 % (92.0 to 99.0)"."""
    return f"{100 * value.shown:.1f} % ({100 * value.low:.1f} to {100 * value.high:.1f})"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return (
        f"{shown} and {len(names) - 5:,} more classes"
        if len(names) > 5
        else f"the classes {shown}"
        if len(names) > 1
        else f"the class {shown}"
    )
