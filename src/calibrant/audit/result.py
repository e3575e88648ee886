"""What an audit found: for a program, a notebook, a frame, a gate."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from calibrant import InputError
from calibrant.audit.breakdown import Breakdown
from calibrant.audit.class_scores import ClassScores
from calibrant.audit.class_table import ClassTable
from calibrant.audit.gate import By, parse_conditions
from calibrant.audit.notebook import as_html
from calibrant.audit.remedies import Remedies
from calibrant.audit.slices import SliceTable
from calibrant.evaluation import Evaluation, Resampling, Row, summarize
from calibrant.metrics import Interval, ReliabilityDiagram

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What an audit found; `rows` are the table's as of `calibrant.evaluation.summarize`, the first at full coverage.

    `gap` is mean confidence minus accuracy. `exact` is False where a long table was summed up in cells (see
    `calibrant.audit.cells`). `page` is the HTML file, if one was asked for. `remedies` is what each remedy would
    gain, `breakdown` which classes and slices are worst. In a notebook, the result shows itself; `print`
    says all in words.
    """

    evaluation: Evaluation
    rows: list[Row]
    diagnosis: list[str]
    gap: Interval
    diagram: ReliabilityDiagram
    exact: bool
    page: Path | None
    remedies: Remedies | None = None
    breakdown: Breakdown | None = None
    bins: int = 15
    resampling: Resampling = field(default_factory=Resampling)
    scores: ClassScores | None = None

    def __repr__(self) -> str:
        """The first findings, in at most four lines."""
        left = len(self.diagnosis) - 2
        more = [f"... and {left} more sentence{'' if left == 1 else 's'}"] if left > 0 else []
        told = [textwrap.shorten(sentence, 200, placeholder=" ...") for sentence in self.diagnosis[:2]]
        head = f"Audit of {self.evaluation.system}, {self.evaluation.id.total:,} predictions; print() says all"
        return "\n  ".join([head, *told, *more])

    def __str__(self) -> str:
        """Every sentence, and the code that applies the best remedies."""
        code = () if self.remedies is None or not self.remedies.code else ("", *self.remedies.code)
        return "\n".join([f"Audit of {self.evaluation.system}", *self.sentences, *code])

    @property
    def sentences(self) -> list[str]:
        """What was found: the diagnosis, proper scores, where it is worst, and what to do."""
        told = [*self.diagnosis, *([] if self.scores is None else [self.scores.sentence(self.rows[0])])]
        told += [] if self.breakdown is None else self.breakdown.sentences
        return told if self.remedies is None else [*told, *self.remedies.sentences]

    @property
    def classes(self) -> ClassTable | None:
        """A row for each class and the most frequent confusions; None where labels or predictions are not known."""
        return None if self.breakdown is None else self.breakdown.classes

    @property
    def slices(self) -> SliceTable | None:
        """The rows by the values of the columns that were named; None if none was."""
        return None if self.breakdown is None else self.breakdown.slices

    def failures(self, conditions: Sequence[str], by: By = "estimate") -> list[str]:
        """A sentence for each of `conditions` that is met, with what was measured; empty if the audit passes.

        A condition is a measure of the rows, or `error`, the share of wrong answers, compared with a number, at full
        coverage or at the coverage after `@`: `"ece > 0.05"`, `"error@0.9 > 2%"`. Measures of OOD data are compared
        for every OOD set. `by` says what is compared: the `"estimate"`; `"any"`, which fails if any value of the
        interval meets the condition, so that passing means something; `"all"`, which fails only if all of them do, so
        that chance alone seldom fails. What cannot be told, fails.
        """
        wanted = parse_conditions(conditions, by, ood=bool(self.evaluation.ood))
        rows, failed = list(self.rows), []
        missing = sorted({one.coverage for one in wanted} - {row.wanted_coverage for row in rows})
        if missing:
            more = summarize([self.evaluation], missing, bins=self.bins, resampling=self.resampling)
            if self.scores is not None:
                more = self.scores.added(more, self.evaluation, self.resampling, self.bins)
            rows += more
        for condition in wanted:
            found = [row for row in rows if row.wanted_coverage == condition.coverage]
            found = found if condition.needs_ood else found[:1]
            failed += [sentence for row in found if (sentence := condition.failure(row, by)) is not None]
        return failed

    def to_frame(self) -> DataFrame:
        """A pandas frame: one row for each coverage, OOD set and measure, with its estimate and interval."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("a frame needs pandas: pip install pandas") from None
        lines = [
            (
                row.wanted_coverage,
                row.ood if measure in _of_ood() else None,
                measure,
                value.estimate,
                value.low,
                value.high,
            )
            for row in self.rows
            for measure, value in row.measures.items()
            if not (math.isnan(value.estimate) and row.ood is None and measure in _of_ood())
        ]
        columns = ["coverage", "ood", "measure", "estimate", "low", "high"]
        return pd.DataFrame(lines, columns=columns).drop_duplicates(["coverage", "ood", "measure"], ignore_index=True)

    def _repr_html_(self) -> str:
        return as_html(self.evaluation.system, self.sentences, self.rows, self.diagram)


def _of_ood() -> set[str]:
    from calibrant.metrics.declarations import catalogue

    return {name for name, measure in catalogue().items() if measure.ood}
