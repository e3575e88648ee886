"""What remedies would gain, as sections of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from calibrant.audit.advice import NAMES, split_of
from calibrant.audit.remedies import Remedies, RemedyRow
from calibrant.metrics import Interval
from calibrant.report.page import Section

OUTLIER_REMEDIES = {
    "recalibrated confidence threshold": "recalibrated confidence",
    "score threshold": "best score in the tables",
    "trust": "trust",
}
_Cell = str | tuple[str, str] | None


def remedy_sections(found: Remedies) -> Iterator[Section]:
    """What to do first, with the code that does it, what else gains, and folded, what else was measured."""
    advice = found.advice
    if advice.first:
        yield Section("What to do", [" ".join(advice.first)], code="\n".join(_commented(found.code)), then=advice.more)
    if advice.rest:
        yield Section("What else was measured", advice.rest, folded=True)
    changed = [row for row in found.rows if row.remedy in NAMES]
    if changed:
        splits = [split_of(part, found.best) for part in found.parts[1:] if not math.isnan(part.calibration.low)]
        yield _recalibrations(changed, splits)
    thresholds = [row for row in found.rows if row.remedy == "confidence threshold"]
    if any(row.before for row in thresholds):
        yield _thresholds(thresholds)
    if found.outliers:
        yield _outliers(found.outliers, [row for row in found.rows if row.ood is not None])


def threshold_note(found: Remedies) -> str:
    """What the threshold of the verdict, which is one on the table's own confidence, is for."""
    if found.best is None:
        return ""
    return (
        "This threshold is for the confidence as it is in the table. Once you have recalibrated, as advised below,"
        " audit the result and use the threshold of that page instead."
    )


def _commented(code: Sequence[str]) -> Iterator[str]:
    """The command apart from the lines of Python, and what these are for."""
    for number, line in enumerate(code):
        if line.startswith("calibrant "):
            yield "# in the shell"
        elif number == 0 or code[number - 1].startswith("calibrant "):
            yield "# in Python"
        elif line == "from calibrant.audit import audit":
            yield "# against outliers"
        yield line


def _recalibrations(rows: Sequence[RemedyRow], splits: Sequence[str]) -> Section:
    measures = list(dict.fromkeys(row.measure for row in rows))
    known = {(row.remedy, row.measure): row for row in rows}
    first = [next(row for row in rows if row.measure == measure) for measure in measures]
    table: list[tuple[_Cell, ...]] = [("as it is", *(_before(row) for row in first))]
    for remedy in dict.fromkeys(row.remedy for row in rows):
        cells = [_changed(known.get((remedy, measure))) for measure in measures]
        table.append((NAMES[remedy], *cells))
    heads = [
        "Recalibration",
        *(measure if measure in ("log loss", "Brier score") else f"{measure}, %" for measure in measures),
    ]
    told = (
        "On rows that it was not fitted to; below each value, the change with its 95 % interval, or the interval of the"
        " ECE itself. A dash: no change."
    )
    return Section("What recalibration gains, in numbers", [told, *splits], heads, table, folded=True)


def _thresholds(rows: Sequence[RemedyRow]) -> Section:
    table = [(row.measure, (f"{100 * row.before:.1f}", ""), _with(row)) for row in rows]
    told = (
        "Thresholds were chosen on other rows than they are measured on; below each value, its 95 % interval or change."
    )
    heads = ("Measure", "Without, %", "With, %")
    return Section("What a threshold on the confidence gains, in numbers", [told], heads, table, folded=True)


def _with(row: RemedyRow) -> _Cell:
    """A coverage with its own interval, because without a threshold it is 1; an error with its change."""
    if row.better == "lower":
        return _changed(row)
    low, high = (100 * min(max(row.before + end, 0), 1) for end in (row.difference.low, row.difference.high))
    return f"{100 * row.after:.1f}", f"{low:.1f} to {high:.1f}" if low < high else ""


def _outliers(sizes: Mapping[str, int], rows: Sequence[RemedyRow]) -> Section:
    """One row for each system, and side by side the measures of each OOD table."""
    measures = list(dict.fromkeys(row.measure for row in rows))
    order = sorted(measures, key=lambda measure: (measure != "outliers answered", measures.index(measure)))
    known = {(row.ood, row.remedy, row.measure): row for row in rows}
    places = [(name, measure) for name in sizes for measure in order]
    start = "recalibrated confidence threshold"
    first = [(_many(measure, known[name, start, measure].before, sizes[name]), "") for name, measure in places]
    table: list[tuple[_Cell, ...]] = [("confidence", *first)]
    for remedy, shown in OUTLIER_REMEDIES.items():
        found = [(known.get((name, remedy, measure)), sizes[name]) for name, measure in places]
        if any(row is not None for row, _ in found):
            table.append((shown, *(None if row is None else _answered(row, size) for row, size in found)))
    heads = [
        (f"{name}: {measure}" if len(sizes) > 1 else measure.capitalize())
        + (f", of {sizes[name]:,}" if measure == "outliers answered" else ", %")
        for name, measure in places
    ]
    told = (
        "All at 80 % coverage of the labeled inputs, on rows that nothing was fitted to. Below each value, the change"
        " in points: of the recalibrated confidence beside the confidence as it is, of all else beside the recalibrated"
        " confidence."
    )
    return Section("What helps against outliers, in numbers", [told], ["Threshold on", *heads], table, folded=True)


def _value(measure: str, value: float) -> str:
    return f"{value:.3f}" if measure in ("log loss", "Brier score") else f"{100 * value:.1f}"


def _many(measure: str, share: float, size: int) -> str:
    return f"{round(share * size):,}" if measure == "outliers answered" else f"{100 * share:.1f}"


def _answered(row: RemedyRow, size: int) -> tuple[str, str]:
    return _many(row.measure, row.after, size), _limits(row.difference, 100, 1)


def _before(row: RemedyRow) -> _Cell:
    return _value(row.measure, row.before), "" if row.intervals is None else _own(row.intervals[0])


def _own(value: Interval) -> str:
    return "" if math.isnan(value.low) else f"{100 * value.low:.1f} to {100 * value.high:.1f}"


def _changed(row: RemedyRow | None) -> _Cell:
    if row is None:
        return None
    if row.intervals is not None:
        return _value(row.measure, row.after), _own(row.intervals[1])
    loss = row.measure in ("log loss", "Brier score")
    return _value(row.measure, row.after), _limits(row.difference, 1 if loss else 100, 3 if loss else 1)


def _limits(value: Interval, factor: float, digits: int) -> str:
    change, low, high = (f"{factor * one:+.{digits}f}" for one in (value.shown, value.low, value.high))
    return change if math.isnan(value.low) else f"{change} ({low} to {high})"
