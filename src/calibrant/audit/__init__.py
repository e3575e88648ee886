"""Someone else's predictions: measures with intervals, a diagnosis, a gate, the page. No model needed.

May import: checks, files, metrics, predictions, calibrators, selective, evaluation, report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.audit.advice import without_outputs
from calibrant.audit.breakdown import Breakdown, GroupDraw
from calibrant.audit.cells import Accumulator
from calibrant.audit.class_scores import ClassScores
from calibrant.audit.column_search import find_layout
from calibrant.audit.columns import Layout
from calibrant.audit.diagnosis import diagnose, diagnose_detectors, mean_gap
from calibrant.audit.leaders import Leaders, Names, exact_examples
from calibrant.audit.opening import FILES, depth, files_in, is_table, labeled_arrays, ood_tables, open_table, wishes_of
from calibrant.audit.python_words import in_python, python_words
from calibrant.audit.ranking import diagnose_reading
from calibrant.audit.remedies import Remedies, measure_remedies
from calibrant.audit.remedy_sections import remedy_sections, threshold_note
from calibrant.audit.result import AuditResult
from calibrant.audit.roles import ROLES, Wishes
from calibrant.audit.sample import Reservoir, Sample
from calibrant.audit.tables import Table
from calibrant.evaluation import Evaluation, Resampling, Row, coverage_curves, summarize
from calibrant.files import writable_file
from calibrant.metrics import coverage_at_error
from calibrant.metrics.functional import functional_of
from calibrant.predictions import Predictions
from calibrant.report.page import Example, Section, write_page

__all__ = ["ROLES", "AuditResult", "Breakdown", "Progress", "Remedies", "Sample", "audit", "measure_remedies"]

MOST_BINS = 1000
GOALS = (0.2, 0.1, 0.05, 0.02, 0.01)
"""Errors that may be tolerated: a page opens at the largest that halves the error of all answers."""
LEAST_COVERAGE = 0.2
"""A page does not open where fewer are answered: an error that only the surest few reach may be due to chance."""
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
        slices: Sequence[str] = (),
        page: str | Path | None = None,
        name: str | None = None,
        bins: int = 15,
        coverages: Sequence[float] = (1.0, 0.5),
        resampling: Resampling | None = None,
        progress: Progress | None = None,
        commands: Sequence[str] = (),
        remedies: bool = True,
        tolerated_error: float | None = None,
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
            slices: columns of the labeled table by whose values rows are compared: text as it is, numbers in groups.
            page: where to write the page.
            name: what to call the system.
            bins: number of confidence bins, at most 1,000.
            coverages: shares of the inputs to accept, those with the largest confidence, at which to measure.
            resampling: how intervals are made.
            progress: called after every block.
            commands: shown on the page.
            remedies: whether to measure what each remedy would gain, on a sample of at most 50,000 rows.
            tolerated_error: the page opens at the largest coverage with at most this share of wrong answers; by
                default 20, 10, 5, 2 or 1 %, the largest of these that is at most half of the error of all answers, or
                a larger one if that leaves less than a fifth of the inputs.

        >>> result = audit([0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]])
        >>> result.rows[0].accuracy.estimate
        0.75
        """
        if page is not None:
            writable_file(Path(page), files_in(predictions, ood))  # before hours of reading, not after
        _check_bins(bins)
        if tolerated_error is not None and not 0 <= tolerated_error <= 1:
            raise InputError(f"tolerated_error must be a share from 0 to 1, not {tolerated_error}")
        wishes = Wishes.of(columns, positive, classes, percent, detectors, slices)
        arrays = not is_table(predictions) or logits is not None
        with nullcontext() if commands else python_words(arrays=arrays):
            role: str | None = None
            if arrays:
                table, wishes, role = labeled_arrays(predictions, other, logits, wishes)
            else:
                ood = other if ood is None else ood
                table, wishes = open_table(predictions), wishes_of(predictions, wishes)
            inside = _Reading.of(table, wishes, bins, progress)
            outside = {
                key: _Reading.of(one, wishes, bins, progress, inside.layout, drawn=remedies)
                for key, one in ood_tables(ood, role).items()
            }
        title = name or table.stem
        far = {key: reading.outcome for key, reading in outside.items()}
        evaluation = Evaluation(title, 0, inside.outcome, far, metadata={"predictions": Path(table.where).name})
        said = _Said(bins, coverages, resampling or Resampling(), page, commands, tolerated_error, remedies, wishes)
        return said.of(evaluation, inside, outside)

    def from_estimator(self, classifier: Any, X: Any, y: Any, *, ood: Any = None, **options: Any) -> AuditResult:
        """Measure what a fitted classifier with `predict_proba` says of inputs `X` with labels `y`.

        Its classes are called as its `classes_` are; where it has none, labels are positions. `ood` are inputs unlike
        the training data, several in a list or by name in a dictionary. `options` as of `audit`.
        """
        if not hasattr(classifier, "predict_proba"):
            raise InputError(
                "classifier has no predict_proba; give a fitted one that has, or audit(labels, probabilities)"
            )
        says, far = classifier.predict_proba, None
        if isinstance(ood, Mapping) and not hasattr(ood, "iloc"):
            far = {key: says(value) for key, value in ood.items()}
        elif ood is not None:
            several = isinstance(ood, list | tuple) and bool(ood) and all(depth(one) == depth(X) for one in ood)
            far = {
                f"ood ({place + 1})" if place else "ood": says(one)
                for place, one in enumerate(ood if several else [ood])
            }
        chosen = {"name": type(classifier).__name__, "classes": list(getattr(classifier, "classes_", ())), **options}
        return self(y, says(X), ood=far, **chosen)


audit = Audit()


def _check_bins(bins: int) -> None:
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins must be a whole number from 1 to {MOST_BINS:,}, not {bins}")


@dataclass(frozen=True)
class _Said:
    """Everything that is said about what was read, as the arguments of `audit` want it, and the page."""

    bins: int
    coverages: Sequence[float]
    how: Resampling
    page: str | Path | None
    commands: Sequence[str]
    tolerated_error: float | None
    remedies: bool
    wishes: Wishes

    def of(self, evaluation: Evaluation, inside: _Reading, outside: dict[str, _Reading]) -> AuditResult:
        rows = summarize([evaluation], self.coverages, bins=self.bins, resampling=self.how)
        (curve,) = coverage_curves([evaluation], [1.0], bins=self.bins)
        diagram, gap = curve.reliability(0), mean_gap(evaluation.id, self.how)
        full = [row for row in rows if row.wanted_coverage == max(self.coverages)]
        told = diagnose_reading(inside.group.columns, inside.layout, self.how)
        told += diagnose(diagram, gap, full[0], [row for row in full if row.ood is not None])
        told += diagnose_detectors(evaluation)
        notes = inside.notes + [note for reading in outside.values() for note in reading.notes]
        in_memory = not self.commands and not isinstance(inside.layout.table, FILES)
        told += [in_python(note, arrays=False) for note in notes] if in_memory else notes
        sample = inside.draw.sample()
        record = inside.layout.table.record
        scores = ClassScores(inside.cells.losses(), sample) if record is None or record.count is None else None
        rows = rows if scores is None else scores.added(rows, evaluation, self.how, self.bins)
        todo, parts = self._remedies(sample, inside, outside), inside.group.breakdown(self.bins)
        if self.page is not None:
            shown = {evaluation.system: _examples(evaluation, inside, outside)}
            scored = [] if scores is None else [scores.sentence(rows[0])]
            self._write(self.page, evaluation, rows, [*told, *scored], shown, todo, parts)
        exact = inside.cells.exact and all(reading.cells.exact for reading in outside.values())
        written = None if self.page is None else Path(self.page)
        return AuditResult(
            evaluation, rows, told, gap, diagram, exact, written, todo, parts, bins=self.bins, resampling=self.how,
            scores=scores,
        )  # fmt: skip

    def _remedies(self, sample: Sample, inside: _Reading, outside: dict[str, _Reading]) -> Remedies | None:
        if not self.remedies:
            return None
        drawn = {key: reading.draw.sample() for key, reading in outside.items()}
        command = without_outputs(self.commands[0]) if self.commands else None
        forecast = inside.layout.forecast
        given = {"score": "score", "logits": "log odds"}[forecast.kind] if forecast.binary else None
        return measure_remedies(
            sample, drawn, resampling=self.how, bins=self.bins, command=command, call=self._call(inside, outside),
            given=given,
        )  # fmt: skip

    def _call(self, inside: _Reading, outside: dict[str, _Reading]) -> str:
        """The audit as a call, with the tables where the command has them."""
        wishes = self.wishes
        options: dict[str, Any] = {"ood": [reading.layout.table.where for reading in outside.values()]}
        options |= {"columns": dict(wishes.columns), "positive": wishes.positive, "percent": wishes.percent}
        options |= {"classes": wishes.classes, "detectors": list(wishes.detectors)}
        chosen = [repr(inside.layout.table.where), *(f"{k}={v!r}" for k, v in options.items() if v)]
        return f"audit({', '.join(chosen)})"

    def _write(
        self,
        page: str | Path,
        evaluation: Evaluation,
        rows: Sequence[Row],
        told: Sequence[str],
        examples: Mapping[str, Sequence[Example]],
        todo: Remedies | None,
        parts: Breakdown,
    ) -> None:
        sections = [*(remedy_sections(todo) if todo is not None else ()), *parts.sections()]
        limits = [*(todo.limits if todo is not None else ()), *parts.limits]
        if limits:
            sections.append(Section("About remedies, classes and slices", limits, place="unknown"))
        write_page(
            page, [evaluation], title=f"Audit of {evaluation.system}", lead=_lead(evaluation), notes=told,
            commands=self.commands, examples=examples, summary=rows, bins=self.bins, sections=sections,
            threshold_note=threshold_note(todo) if todo is not None else "", **self._opening(evaluation),
        )  # fmt: skip

    def _opening(self, evaluation: Evaluation) -> dict[str, Any]:
        """Where the page opens: at the tolerated error, or where nearly everything is answered if errors are rare."""
        if self.tolerated_error is not None:
            return {"tolerated_error": self.tolerated_error}
        outcome = evaluation.id
        error = 1 - float(outcome.correct @ outcome.weights) / outcome.total
        halved = [goal for goal in GOALS if goal <= error / 2]
        if not halved:
            return {"coverage": 0.95 if evaluation.ood else 1.0}
        for goal in (halved[0], *(goal for goal in GOALS[::-1] if error / 2 < goal < error)):
            reached = functional_of(coverage_at_error, outcome.acceptance, outcome.correct, error=goal)
            if float(reached.value([outcome.weights])) >= LEAST_COVERAGE:
                return {"tolerated_error": goal}
        return {"coverage": 0.8}


def _lead(evaluation: Evaluation) -> str:
    """What the page is about, in one sentence."""
    sizes = {name: outcome.total for name, outcome in evaluation.ood.items()}
    far = ", ".join(f"{name}: {size:,}" for name, size in sizes.items())
    called = f"{sizes['outliers']:,} outliers" if [*sizes] == ["outliers"] else f"outliers ({far})"
    outliers = f", and are {called} recognized" if far else ""
    return f"How far can the confidence of these {evaluation.id.total:,} predictions be trusted{outliers}?"


@dataclass(frozen=True)
class _Reading:
    """One table, read to its end."""

    layout: Layout
    cells: Accumulator
    outcome: Predictions
    leaders: list[Leaders]
    names: Names
    group: GroupDraw
    draw: Reservoir

    @classmethod
    def of(
        cls,
        table: Table,
        wishes: Wishes,
        bins: int,
        progress: Progress | None,
        like: Layout | None = None,
        *,
        drawn: bool = True,
    ) -> _Reading:
        layout = find_layout(table, wishes, like=like)
        cells, names, group, draw = Accumulator(bins), Names(), GroupDraw(layout.classes), Reservoir()
        leaders = [Leaders("mistake"), Leaders("rejected", "least")] if like is None else [Leaders("ood")]
        for rows in layout.read():
            cells.add(rows)
            names.add(rows)
            if like is None:
                group.add(rows)
            if drawn:
                draw.add(vars(rows))
            for leader in leaders:
                leader.add(rows)
            if progress is not None:
                progress(rows.done, cells.rows)
        outcome = cells.outcome() if table.record is None else table.record.numpy()
        if like is not None and (_selection(like.table) is None) != (_selection(table) is None):
            raise InputError("ood and the labeled predictions must both have a selection, or neither: it decides")
        return cls(layout, cells, outcome, leaders, names, group, draw)

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
