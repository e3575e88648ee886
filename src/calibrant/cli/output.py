"""What commands print: tables for people and JSON for machines on standard output, progress on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calibrant.cli.errors import is_main_process

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.evaluation import Row
    from calibrant.metrics import DeclaredMeasure


def print_json(value: Any) -> None:
    """`value` as JSON on standard output, by rank 0."""
    if is_main_process():
        print(json.dumps(value, indent=2, allow_nan=False))


def print_lines(*lines: str) -> None:
    """Lines for people on standard output, by rank 0."""
    if is_main_process():
        print(*lines, sep="\n")


def log(line: str) -> None:
    """A line on standard error, by rank 0."""
    if is_main_process():
        print(line, file=sys.stderr, flush=True)


def print_table(table: Table) -> None:
    """A table on standard output, by rank 0; as wide as the terminal; in a pipe 100 characters, or 12 per column."""
    from rich.console import Console

    if is_main_process():
        width = None if sys.stdout.isatty() else max(100, 4 + 12 * len(table.columns))
        Console(width=width, highlight=False).print(table)


def plain_table(*headers: str) -> Table:
    """An empty table in our style."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def print_results(rows: Sequence[Row], level: float = 0.95) -> None:
    """The table of `rows`, that of the stream with outliers where there are OOD data, and how to read them."""
    seeds = len(rows[0].seeds)
    print_table(results_table(rows))
    print_lines(
        f"Percent; below, {100 * level:g} % intervals over inputs{f' and {seeds} seeds' if seeds > 1 else ''}.",
        "accepted: share of the ID test inputs that are answered; the other columns are about the accepted inputs.",
    )
    if any(row.ood is not None for row in rows):
        print_lines(
            "detected: OOD detection probability. Below it, k of n OOD inputs were accepted, where any were rejected;"
            " k of n alone means that these are too few to measure."
        )
        print_table(stream_table(rows))
        print_lines(
            "accepted: share of the OOD inputs that are answered. wrong, ECE: over all answers given in a stream of"
            " which 10 % are OOD inputs, where every answer to an OOD input is wrong."
        )


def results_table(rows: Sequence[Row]) -> Table:
    """Systems at each coverage: measures of the accepted inputs that the terminal shows, with intervals.

    At full coverage a selective scheme is the same as the one it selects from, so they share a line.
    """
    shown = [measure for measure in _shown() if measure.of != "all ID and OOD" and measure.name != "coverage"]
    inside, outside = ([measure for measure in shown if measure.ood == ood] for ood in (False, True))

    def cells(found: list[Row]) -> Iterator[str]:
        yield from (cell(measure, found[0]) for measure in inside)
        for row in found:
            if row.ood is not None:
                first, *others = outside
                yield cell(first, row, counted=True)
                yield from (cell(measure, row) for measure in others)

    return _table(rows, [measure.heading for measure in inside], outside, cells)


def stream_table(rows: Sequence[Row]) -> Table:
    """Systems at each coverage: measures of all ID and OOD inputs that the terminal shows, with intervals."""
    shown = [measure for measure in _shown() if measure.of == "all ID and OOD"]

    def cells(found: list[Row]) -> Iterator[str]:
        for row in found:
            yield from (cell(one, row, counted=one.name == "ood_acceptance") for one in shown if row.ood is not None)

    return _table(rows, [], shown, cells)


def _shown() -> list[DeclaredMeasure]:
    from calibrant.metrics.declarations import catalogue

    return [measure for measure in catalogue().values() if measure.show == "terminal"]


def _table(
    rows: Sequence[Row], inside: list[str], outside: list[DeclaredMeasure], cells: Callable[[list[Row]], Iterable[str]]
) -> Table:
    """A line for each system and coverage: name, share accepted, then columns of ID and of each OOD set."""
    table = plain_table("system", "accepted", *inside)
    for name in dict.fromkeys(row.ood for row in rows if row.ood is not None):
        for measure in outside:
            table.add_column(f"{name}\n{measure.heading}")
    grouped: dict[float, dict[str, list[Row]]] = {}
    for row in rows:
        grouped.setdefault(row.wanted_coverage, {}).setdefault(row.system, []).append(row)
    for coverage, systems in grouped.items():
        for name, found in _merged(systems, coverage):
            table.add_row(name, f"{100 * found[0].coverage.estimate:.1f} %", *cells(found))
        table.add_section()
    return table


def cell(measure: DeclaredMeasure, row: Row, *, counted: bool = False) -> str:
    """The estimate above its interval; how many OOD inputs were accepted where it is undefined or, `counted`, below."""
    interval, text = row.measures[measure.name], measure.text
    accepted = f"{row.accepted_ood} of {row.n_ood}"
    if math.isnan(interval.estimate):
        return accepted if measure.ood else "–"
    lines = [text(interval.shown)]
    if not math.isnan(interval.low):
        lines.append(f"{text(interval.low)}–{text(interval.high)}")
    if counted and row.accepted_ood < row.n_ood:
        lines.append(accepted)
    return "\n".join(lines)


def _merged(systems: dict[str, list[Row]], coverage: float) -> Iterator[tuple[str, list[Row]]]:
    """The rows by system; at full coverage a selective scheme stands with its own network, where all measures agree."""
    twins = {f"S{name}": name for name in systems if coverage == 1 and _agree(systems[name], systems.get(f"S{name}"))}
    for name, found in systems.items():
        if name not in twins:
            yield (f"{name}, S{name}" if f"S{name}" in twins else name), found


def _agree(rows: list[Row], others: list[Row] | None) -> bool:
    """Whether two systems have the same measures, but for those of the whole order of acceptance."""
    from calibrant.metrics.declarations import catalogue

    shown = [name for name, measure in catalogue().items() if measure.at_coverage]
    return others is not None and all(
        _same(one.measures[name].estimate, other.measures[name].estimate)
        for one, other in zip(rows, others)
        for name in shown
    )


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


@contextmanager
def step_display(labels: Sequence[str]) -> Iterator[Any]:
    """Bars, one a label, as a function `(label, what comes next, done, total)`; lines where there is no terminal."""
    if not is_main_process() or not sys.stderr.isatty():
        yield lambda label, name, done, total: log(f"{label}: {done}/{total} {name}")
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.fields[step]}"), console=Console(stderr=True)) as progress:
        tasks = {label: progress.add_task(label, total=None, step="starting") for label in labels}
        yield lambda label, name, done, total: progress.update(tasks[label], completed=done, total=total, step=name)


@contextmanager
def share_display(what: str) -> Iterator[Any]:
    """A bar as a function `(share that is done, how many)`, on a terminal; None elsewhere."""
    if not is_main_process() or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.fields[count]}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0, count="")
        yield lambda share, count: progress.update(task, completed=share, count=f"{count:,} {what}")
