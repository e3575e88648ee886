"""The rows to look at: picked from those at hand, or kept while a long table streams by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.cells import EXACT_ROWS
from calibrant.audit.columns import Rows
from calibrant.evaluation import Evaluation, share_above
from calibrant.predictions import Predictions
from calibrant.report.page.examples import SHOWN, Example, Kind, pick_examples

GRID = tuple(position / 100 for position in range(1, 101))
Found = tuple[float, int, str | None, str | None]


def _text(values: NDArray[Any] | None, position: int) -> str | None:
    return None if values is None else str(values[position])


@dataclass
class Leaders:
    """The rows at the top (or the bottom) of a table by their confidence."""

    kind: Kind
    end: Literal["most", "least"] = "most"
    found: list[Found] = field(default_factory=list)

    def add(self, rows: Rows) -> None:
        """Look through some rows: wrong ones for mistakes, right ones for rejections, all for OOD inputs."""
        if self.kind == "ood":
            candidates = np.arange(len(rows.confidence))
        else:
            assert rows.correct is not None
            candidates = np.flatnonzero(rows.correct == (self.kind == "rejected"))
        value = rows.confidence[candidates] * (-1 if self.end == "most" else 1)
        for position in candidates[np.argsort(value, kind="stable")[:SHOWN]].tolist():
            label, said = _text(rows.label, position), _text(rows.predicted, position)
            self.found.append((float(rows.confidence[position]), rows.number(position), label, said))
        self.found.sort(key=lambda one: (-one[0] if self.end == "most" else one[0], one[1]))
        del self.found[SHOWN:]

    def examples(self, evaluation: Evaluation, dataset: str) -> list[Example]:
        """As the page shows them."""
        if not self.found:
            return []
        levels = np.array([one[0] for one in self.found])
        share = share_above(evaluation, Predictions(levels, np.zeros(len(levels), np.int64)))
        return [
            Example(self.kind, dataset, row, label, said, level, float(part))
            for (level, row, label, said), part in zip(self.found, share)
        ]


class Names:
    """What the first rows of a table said in its own words, until there are too many to keep."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        """Keep some rows."""
        self._rows += len(rows.confidence)
        if self._rows <= EXACT_ROWS:
            self._parts.append(rows)

    def of(self, row: int) -> tuple[int, str | None, str | None]:
        """Of the row with this number among those that were read: where it stands in the table, label, prediction."""
        part = next(part for part in reversed(self._parts) if part.start <= row)
        place = row - part.start
        return part.number(place), _text(part.label, place), _text(part.predicted, place)


def exact_examples(evaluation: Evaluation, names: dict[str, Names], grid: Sequence[float] = GRID) -> list[Example]:
    """Those of every coverage, from tables that were kept as they are, in the tables' own words."""
    result = []
    for one in pick_examples(evaluation, grid):
        row, label, said = names[one.dataset].of(one.row)
        result.append(replace(one, row=row, label=label, predicted=said))
    return result
