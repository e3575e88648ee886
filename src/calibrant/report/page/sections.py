"""What else a page can be given: sections of its own, certificates, and the sentences about what is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from calibrant import InputError
from calibrant.evaluation import Evaluation, threshold_source

SectionCell = str | int | float | tuple[str, str] | None
SectionPlace = Literal["remedies", "groups", "unknown"]
MOST_ROWS = 200
FEW = 1000


@dataclass(frozen=True)
class Section:
    """One more section of the page: sentences, a table and code that can be copied, each of them optional.

    Attributes:
        title: its heading.
        sentences: paragraphs above the table.
        columns: headings of the table.
        rows: cells of the table. Text is shown as it is, a number with four digits, None as a dash; of a pair of texts
            the second stands below the first, as an interval does. Of more than 200 rows the first 200 are shown.
        code: a command or lines of Python, with a button that copies them.
        then: sentences below the code, as a list.
        place: where it stands: "remedies" behind the verdict and the findings, "groups" (slices, classes) behind the
            table of numbers, "unknown" among what is not known.
        folded: whether it stands below the section before it and opens when its title is clicked.

    >>> Section("What to do", ["Temperature scaling helps."], ["Remedy", "ECE"], [("none", ("6.1", "4.9 to 7.3"))])
    Section(title='What to do', sentences=['Temperature scaling helps.'], ...)
    """

    title: str
    sentences: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[SectionCell]] = ()
    code: str = ""
    then: Sequence[str] = ()
    place: SectionPlace = "remedies"
    folded: bool = False

    def described(self) -> dict[str, Any]:
        """For the template: all cells as text, with what stands below them."""
        wrong = next((row for row in self.rows if len(row) != len(self.columns)), None)
        if wrong is not None:
            raise InputError(
                f"rows of the section {self.title!r} must have {len(self.columns)} cells, not {len(wrong)}"
            )
        left_out = max(0, len(self.rows) - MOST_ROWS)
        return {
            "title": self.title,
            "sentences": [*self.sentences, *([f"{left_out:,} more rows are not shown."] if left_out else [])],
            "columns": list(self.columns),
            "rows": [[_cell(cell) for cell in row] for row in self.rows[:MOST_ROWS]],
            "code": self.code,
            "then": list(self.then),
            "place": self.place,
            "folded": self.folded,
        }


@dataclass(frozen=True)
class Certified:
    """A threshold that was certified, and the sentence that says what holds at it; None: none could be certified."""

    threshold: float | None
    sentence: str
    seed: int = 0

    def described(self) -> dict[str, Any]:
        """JSON values; the threshold that accepts everything, -infinity, is None there."""
        finite = self.threshold is not None and math.isfinite(self.threshold)
        return {
            **asdict(self),
            "certified": self.threshold is not None,
            "threshold": self.threshold if finite else None,
        }


def _cell(cell: SectionCell) -> dict[str, Any]:
    if isinstance(cell, tuple):
        return {"text": cell[0], "small": cell[1], "number": True}
    if cell is None or isinstance(cell, str):
        return {"text": "–" if cell is None else cell, "small": "", "number": cell is None}
    whole = isinstance(cell, int)
    text = f"{cell:,}" if whole else "–" if cell != cell else f"{cell:.4g}"
    return {"text": text, "small": "", "number": True}


def not_known(evaluations: Sequence[Evaluation], names: Mapping[str, str]) -> list[str]:
    """What the numbers of a page cannot tell, in sentences; `names` are what the data sets are called."""
    first = evaluations[0]
    told = []
    if first.id.total < FEW:
        told.append(
            f"There are only {first.id.total:,} labeled inputs: one wrong answer more or fewer moves the accuracy at"
            f" full coverage by {100 / first.id.total:.2g} points."
        )
    kinds = [names.get(name, name) for name in first.ood]
    if kinds:
        told.append(f"How many outliers would be answered is known for {_listed(kinds)} only; other kinds may differ.")
    else:
        told.append("No outliers were given, so it is not known how many inputs unlike these would be answered.")
    if threshold_source(first) == "test":
        told.append(
            "The thresholds were set on the same inputs that judge them, so the numbers are slightly optimistic."
        )
    if len({one.seed for one in evaluations}) == 1:
        told.append("Retraining the same model would give different numbers; how different is not known.")
    return told


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
