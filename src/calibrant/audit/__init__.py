"""Someone else's predictions: measures with intervals, a diagnosis, a gate, the page. No model needed.

May import: checks, files, metrics, predictions, calibrators, selective, evaluation, report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.audit.cells import Accumulator
from calibrant.audit.column_search import find_layout
from calibrant.audit.columns import Layout
from calibrant.audit.diagnosis import diagnose, diagnose_detectors, mean_gap
from calibrant.audit.leaders import Leaders, Names, exact_examples
from calibrant.audit.opening import is_table, labeled_arrays, ood_tables, open_table, wishes_of
from calibrant.audit.remedies import Remedies, measure_remedies
from calibrant.audit.result import AuditResult
from calibrant.audit.roles import ROLES, Wishes
from calibrant.audit.sample import Reservoir, Sample
from calibrant.audit.tables import Table
from calibrant.evaluation import Evaluation, Resampling, coverage_curves, summarize
from calibrant.files import writable
from calibrant.predictions import Predictions
from calibrant.report.page import Example, write_page

__all__ = ["ROLES", "AuditResult", "Progress", "Remedies", "Sample", "audit", "measure_remedies"]

MOST_BINS = 1000
Progress = Callable[[float, int], None]
"""Called after every block with the share of the table that was read, from 0 to 1, and the number of rows so far."""


class Audit:
    """Measures predictions; `calibrant.audit.audit` is the one to call, as a function."""

    def __call__(
        self,
        predictions: Any,
        other: Any = None,
        *,
        ood: Any = None,
        logits: Any = None,
        positive: Any = None,
        classes: Sequence[Any] | int = (),
        percent: bool = False,
        columns: Mapping[str, str] | None = None,
        detectors: Sequence[str] = (),
        page: str | Path | None = None,
        name: str | None = None,
        bins: int = 15,
        coverages: Sequence[float] = (1.0, 0.5),
        resampling: Resampling | None = None,
        progress: Progress | None = None,
        commands: Sequence[str] = (),
        remedies: bool = True,
    ) -> AuditResult:
        """Measure predictions of any number, in bounded memory: `audit(table)` or `audit(labels, probabilities)`.

        A table is a file (CSV, TSV, Parquet, NPZ), a data frame, a dictionary of arrays, or our own `Predictions`. It
        has a confidence, the probabilities or logits of all classes (columns p_0, p_1, ..., or one column of lists), or
        a score of two classes; and a label, with what was predicted beside a confidence, or `correct` of 0 and 1.

        Args:
            predictions: the table, or labels (N,) where `other` or `logits` are arrays.
            other: beside labels, probabilities (N, C), or (N,) of the positive one of two classes; beside a table, the
                same as `ood`.
            ood: predictions on inputs unlike the training data, without labels: a table, several in a list or by name
                in a dictionary; beside labels, arrays like `other`.
            logits: beside labels, logits (N, C), or (N,) log odds of the positive class, instead of `other`.
            positive: the class whose probability a score is; by default 1 of 0 and 1, or of -1 and 1.
            classes: names of the classes in the order of the probabilities, as in `classifier.classes_`; or how many
                there are.
            percent: whether confidences and probabilities are percentages.
            columns: names of columns by role, as in `{"label": "gold"}`, where they are not called as usual; see
                `ROLES`.
            detectors: columns of outlier scores, larger = more outlying.
            page: where to write the page.
            name: what to call the system.
            bins: number of confidence bins, at most 1,000.
            coverages: shares of the inputs to accept, those with the largest confidence, at which to measure.
            resampling: how intervals are made.
            progress: called after every block.
            commands: shown on the page.
            remedies: whether to measure what each remedy would gain, on a sample of at most 50,000 rows.

        >>> result = audit([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
        >>> result.rows[0].accuracy.estimate
        0.75
        """
        if page is not None:
            writable(Path(page).parent)  # before hours of reading, not after
        _check_bins(bins)
        wishes = Wishes.of(columns, positive, classes, percent, detectors)
        role: str | None = None
        if is_table(predictions) and logits is None:
            ood = other if ood is None else ood
            table, wishes = open_table(predictions), wishes_of(predictions, wishes)
        else:
            table, wishes, role = labeled_arrays(predictions, other, logits, wishes)
        draw = Reservoir if remedies else lambda: None
        inside = _Reading.of(table, wishes, bins, progress, draw=draw())
        sources = ood_tables(ood, role)
        outside = {key: _Reading.of(one, wishes, bins, progress, inside.layout, draw()) for key, one in sources.items()}
        title = name or table.stem
        far = {key: reading.outcome for key, reading in outside.items()}
        evaluation = Evaluation(title, 0, inside.outcome, far, metadata={"predictions": Path(table.where).name})
        return _measured(evaluation, inside, outside, bins, coverages, resampling or Resampling(), page, commands)

    def from_estimator(self, classifier: Any, X: Any, y: Any, *, ood: Any = None, **options: Any) -> AuditResult:
        """Measure what a fitted classifier with `predict_proba` and `classes_` says of inputs `X` with labels `y`.

        `ood` are inputs unlike the training data, or several by name in a dictionary. `options` as of `audit`.
        """
        for needed in ("predict_proba", "classes_"):
            if not hasattr(classifier, needed):
                raise InputError(
                    f"classifier has no {needed}; give a fitted one that has, or audit(labels, probabilities)"
                )
        says, far = classifier.predict_proba, None
        if ood is not None:
            several = isinstance(ood, Mapping) and not hasattr(ood, "iloc")
            far = {key: says(value) for key, value in (ood.items() if several else (("ood", ood),))}
        chosen = {"name": type(classifier).__name__, "classes": list(classifier.classes_), **options}
        return self(y, says(X), ood=far, **chosen)


audit = Audit()


def _check_bins(bins: int) -> None:
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins must be a whole number from 1 to {MOST_BINS:,}, not {bins}")


def _measured(
    evaluation: Evaluation,
    inside: _Reading,
    outside: dict[str, _Reading],
    bins: int,
    coverages: Sequence[float],
    how: Resampling,
    page: str | Path | None,
    commands: Sequence[str],
) -> AuditResult:
    """Everything that is said about what was read, and the page."""
    rows = summarize([evaluation], coverages, bins=bins, resampling=how)
    (curve,) = coverage_curves([evaluation], [1.0], bins=bins)
    diagram, gap = curve.reliability(0), mean_gap(evaluation.id, how)
    full = [row for row in rows if row.wanted_coverage == max(coverages)]
    told = diagnose(diagram, gap, full[0], [row for row in full if row.ood is not None])
    told += diagnose_detectors(evaluation)
    told += inside.notes + [note for reading in outside.values() for note in reading.notes]
    todo = None
    if inside.draw is not None:
        drawn = {key: reading.draw.sample() for key, reading in outside.items() if reading.draw is not None}
        table = Path(inside.layout.table.where).name
        todo = measure_remedies(inside.draw.sample(), drawn, resampling=how, bins=bins, table=table)
    if page is not None:
        shown = {evaluation.system: _examples(evaluation, inside, outside)}
        heading = f"Audit of {evaluation.system}"
        write_page(
            page, [evaluation], title=heading, notes=[*told, *(todo.sentences if todo else ())], commands=commands,
            examples=shown, summary=rows, bins=bins,
        )  # fmt: skip
    exact = inside.cells.exact and all(reading.cells.exact for reading in outside.values())
    written = None if page is None else Path(page)
    return AuditResult(evaluation, rows, told, gap, diagram, exact, written, todo, bins=bins, resampling=how)


@dataclass(frozen=True)
class _Reading:
    """One table, read to its end."""

    layout: Layout
    cells: Accumulator
    outcome: Predictions
    leaders: list[Leaders]
    names: Names
    draw: Reservoir | None

    @classmethod
    def of(
        cls,
        table: Table,
        wishes: Wishes,
        bins: int,
        progress: Progress | None,
        like: Layout | None = None,
        draw: Reservoir | None = None,
    ) -> _Reading:
        layout = find_layout(table, wishes, like=like)
        cells, names = Accumulator(bins), Names()
        leaders = [Leaders("mistake"), Leaders("rejected", "least")] if like is None else [Leaders("ood")]
        for rows in layout.read():
            cells.add(rows)
            names.add(rows)
            if draw is not None:
                draw.add(vars(rows))
            for leader in leaders:
                leader.add(rows)
            if progress is not None:
                progress(rows.done, cells.rows)
        outcome = cells.outcome() if table.record is None else table.record.numpy()
        if like is not None and (_selection(like.table) is None) != (_selection(table) is None):
            raise InputError("ood and the labeled predictions must both have a selection, or neither: it decides")
        return cls(layout, cells, outcome, leaders, names, draw)

    @property
    def notes(self) -> list[str]:
        """What was taken for what, and what was left out."""
        notes = self.layout.notes
        if self.layout.detectors and not self.cells.exact:
            names = ", ".join(self.layout.detectors)
            notes.append(f"Detectors ({names}) are compared in tables of up to 20,000 rows; this one is longer.")
        return notes


def _selection(table: Table) -> Any:
    return None if table.record is None else table.record.selection


def _examples(evaluation: Evaluation, inside: _Reading, outside: dict[str, _Reading]) -> list[Example]:
    sets = {"id": inside, **outside}
    if all(reading.cells.exact for reading in sets.values()):
        return exact_examples(evaluation, {key: reading.names for key, reading in sets.items()})
    return [
        one for key, reading in sets.items() for leader in reading.leaders for one in leader.examples(evaluation, key)
    ]
