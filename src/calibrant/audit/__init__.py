"""Someone else's predictions: measures with intervals, a diagnosis, the page. No model needed.

May import: checks, files, metrics, predictions, calibrators, selective, data, evaluation, report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant.audit.cells import Accumulator
from calibrant.audit.columns import ROLES, Layout
from calibrant.audit.diagnosis import diagnose, mean_gap
from calibrant.audit.leaders import Leaders, Names, exact_examples
from calibrant.audit.remedies import Remedies, measure_remedies
from calibrant.audit.sample import Reservoir, Sample
from calibrant.audit.tables import Table
from calibrant.evaluation import Evaluation, Resampling, Row, coverage_curves, summarize
from calibrant.files import writable
from calibrant.metrics import Interval, ReliabilityDiagram
from calibrant.predictions import Predictions
from calibrant.report.page import Example, write_page

__all__ = ["ROLES", "AuditResult", "Progress", "Remedies", "Sample", "audit", "measure_remedies"]

Progress = Callable[[float, int], None]
"""Called after every block with the share of the table that was read, from 0 to 1, and the number of rows so far."""


@dataclass(frozen=True)
class AuditResult:
    """What an audit found; `rows` are the table's as of `calibrant.evaluation.summarize`, the first at full coverage.

    `gap` is mean confidence minus accuracy. `exact` is False where a long table was summed up in cells (see
    `calibrant.audit.cells`). `page` is the HTML file, if one was asked for. `remedies` is what each remedy would gain.
    """

    evaluation: Evaluation
    rows: list[Row]
    diagnosis: list[str]
    gap: Interval
    diagram: ReliabilityDiagram
    exact: bool
    page: Path | None
    remedies: Remedies | None = None


def audit(
    predictions: str | Path,
    ood: str | Path | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    page: str | Path | None = None,
    name: str | None = None,
    bins: int = 15,
    coverages: Sequence[float] = (1.0, 0.5),
    resampling: Resampling | None = None,
    progress: Progress | None = None,
    commands: Sequence[str] = (),
    remedies: bool = True,
) -> AuditResult:
    """Measure the predictions in a table (CSV, TSV, Parquet, NPZ), of any length, in bounded memory.

    The table has a confidence or the probabilities of all classes (columns p_0, p_1, ..., or one column of lists), and
    a label with what was predicted, or `correct` of 0 and 1. `columns` names them where they are not called so, as in
    `{"label": "gold"}`; see `ROLES`. `ood`: a table of predictions on inputs unlike the training data, without labels.
    `page`: where to write the page. `remedies`: whether to measure what each remedy would gain, on a sample of at most
    50,000 rows.
    """
    if page is not None:
        writable(Path(page).parent)  # before hours of reading, not after
    how = resampling or Resampling()
    draws = (Reservoir(), Reservoir()) if remedies else (None, None)
    inside = _Reading.of(predictions, columns, bins, progress, labeled=True, draw=draws[0])
    outside = None if ood is None else _Reading.of(ood, columns, bins, progress, labeled=False, draw=draws[1])
    far = {} if ood is None or outside is None else {Path(ood).stem: outside.outcome}
    title = name or Path(predictions).stem
    evaluation = Evaluation(title, 0, inside.outcome, far, metadata={"predictions": Path(predictions).name})
    rows = summarize([evaluation], coverages, bins=bins, resampling=how)
    (curve,) = coverage_curves([evaluation], [1.0], bins=bins)
    diagram, gap = curve.reliability(0), mean_gap(inside.outcome, how)
    full = [row for row in rows if row.wanted_coverage == max(coverages)]
    told = diagnose(diagram, gap, full[0], [row for row in full if row.ood is not None])
    told += inside.layout.notes
    todo = None
    if draws[0] is not None:
        drawn = {name: draws[1].sample() for name in far}
        table = Path(predictions).name
        todo = measure_remedies(draws[0].sample(), drawn, resampling=how, bins=bins, table=table)
    if page is not None:
        shown = {title: _examples(evaluation, inside, outside)}
        heading = f"Audit of {title}"
        write_page(
            page, [evaluation], title=heading, notes=[*told, *(todo.sentences if todo else ())], commands=commands,
            examples=shown, summary=rows, bins=bins,
        )  # fmt: skip
    exact = inside.cells.exact and (outside is None or outside.cells.exact)
    return AuditResult(evaluation, rows, told, gap, diagram, exact, None if page is None else Path(page), todo)


@dataclass(frozen=True)
class _Reading:
    """One table, read to its end."""

    layout: Layout
    cells: Accumulator
    outcome: Predictions
    leaders: list[Leaders]
    names: Names

    @classmethod
    def of(
        cls,
        path: str | Path,
        columns: Mapping[str, str] | None,
        bins: int,
        progress: Progress | None,
        *,
        labeled: bool,
        draw: Reservoir | None,
    ) -> _Reading:
        layout = Layout.find(Table.open(path), columns, labeled=labeled)
        cells, names = Accumulator(bins), Names()
        leaders = [Leaders("mistake"), Leaders("rejected", "least")] if labeled else [Leaders("ood")]
        for rows in layout.read():
            cells.add(rows)
            names.add(rows)
            if draw is not None:
                draw.add(vars(rows))
            for leader in leaders:
                leader.add(rows)
            if progress is not None:
                progress(rows.done, cells.rows)
        if not cells.rows:
            raise ValueError(f"{path} holds no rows; write the predictions again")
        return cls(layout, cells, cells.outcome(), leaders, names)


def _examples(evaluation: Evaluation, inside: _Reading, outside: _Reading | None) -> list[Example]:
    sets = {"id": inside} | ({} if outside is None else dict.fromkeys(evaluation.ood, outside))
    if all(reading.cells.exact for reading in sets.values()):
        return exact_examples(evaluation, {key: reading.names for key, reading in sets.items()})
    return [
        one for key, reading in sets.items() for leader in reading.leaders for one in leader.examples(evaluation, key)
    ]
