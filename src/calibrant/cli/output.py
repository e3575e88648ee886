"""What commands print: tables for people and JSON for machines on standard output, progress on standard error."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from calibrant.cli.errors import is_main_process

if TYPE_CHECKING:
    from rich.table import Table

    from calibrant.evaluation import Row
    from calibrant.metrics import Interval


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
    """A table on standard output, by rank 0; as wide as the terminal, or 100 columns in a pipe."""
    from rich.console import Console

    if is_main_process():
        Console(width=None if sys.stdout.isatty() else 100, highlight=False).print(table)


def plain_table(*headers: str) -> Table:
    """An empty table in our style."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for header in headers:
        table.add_column(header, overflow="fold")
    return table


def print_results(rows: Sequence[Row], level: float = 0.95) -> None:
    """The table of `rows`, and how to read it."""
    seeds = len(rows[0].seeds)
    print_table(results_table(rows))
    print_lines(
        f"Percent; below, {100 * level:g} % intervals over inputs{f' and {seeds} seeds' if seeds > 1 else ''}.",
        "accepted: share of the ID test inputs that are answered; all else is of the accepted.",
    )
    if any(row.ood is not None for row in rows):
        print_lines(
            "detected: OOD detection probability; k of n: only k of n OOD inputs were accepted, too few to measure."
        )


def results_table(rows: Sequence[Row]) -> Table:
    """Systems at each coverage: accuracy, ECE, OOD detection probability and AUROC, in percent, with intervals.

    At full coverage a selective scheme is the same as the one it selects from, so they share a line.
    """
    table = plain_table("system", "accepted", "accuracy", "ECE")
    for name in dict.fromkeys(row.ood for row in rows if row.ood is not None):
        table.add_column(f"{name}\ndetected")
        table.add_column(f"{name}\nAUROC")
    grouped: dict[float, dict[str, list[Row]]] = {}
    for row in rows:
        grouped.setdefault(row.wanted_coverage, {}).setdefault(row.system, []).append(row)
    for coverage, systems in grouped.items():
        for name, found in _merged(systems, coverage):
            cells = [f"{_percent(found[0].coverage.estimate)} %", cell(found[0].accuracy), cell(found[0].ece)]
            for row in found:
                cells += [cell(row.detection, row), cell(row.auroc, row)] if row.ood is not None else []
            table.add_row(name, *cells)
        table.add_section()
    return table


def cell(interval: Interval, row: Row | None = None) -> str:
    """The estimate above its interval; how many were accepted where it is undefined."""
    if math.isnan(interval.estimate):
        return "–" if row is None else f"{row.accepted_ood} of {row.n_ood}"
    if math.isnan(interval.low):
        return _percent(interval.estimate)
    return f"{_percent(interval.estimate)}\n{_percent(interval.low)}–{_percent(interval.high)}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _merged(systems: dict[str, list[Row]], coverage: float) -> Iterator[tuple[str, list[Row]]]:
    for name, found in systems.items():
        twin = f"S{name}"
        if coverage == 1 and name.startswith("S") and name[1:] in systems:
            continue
        yield (f"{name}, {twin}" if coverage == 1 and twin in systems else name), found


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
