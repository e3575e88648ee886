"""Tables of measured numbers: CSV in fractions with the limits of every interval, Markdown in percent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.files import write_bytes, write_csv
from calibrant.metrics import DeclaredMeasure, Interval


@dataclass(frozen=True)
class Measured:
    """An interval of a declared measure, which says how it is written, and whether in Markdown too."""

    interval: Interval
    measure: DeclaredMeasure


Cell = Interval | Measured | float | int | str | None


@dataclass(frozen=True)
class StudyTable:
    """Rows of cells by column; `name` is that of its files, `note` a sentence below it.

    An `Interval` is a fraction: CSV gets three columns, Markdown `12.3 [11.0, 13.4]` in percent. Other numbers are
    written as they are. Measures that are shown nowhere but on the page are in the CSV file alone.
    """

    rows: Sequence[Mapping[str, Cell]]
    name: str = "table"
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns of the text, in the order in which they first occur."""
        shown = (column for row in self.rows for column, cell in row.items() if not _in_file_only(cell))
        return list(dict.fromkeys(shown))

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns)]
        lines += [[markdown_cell(row.get(column)) for column in self.columns] for row in self.rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{text}\n" + (f"\n{self.note}\n" if self.note else "")

    def write(self, folder: Path) -> None:
        """Write NAME.csv and NAME.md."""
        write_csv(folder / f"{self.name}.csv", [_flat(row) for row in self.rows])
        write_bytes(folder / f"{self.name}.md", self.markdown().encode())


def _flat(row: Mapping[str, Cell]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, cell in row.items():
        cell = cell.interval if isinstance(cell, Measured) else cell
        if isinstance(cell, Interval):
            result[name] = _digits(cell.estimate)
            result[f"{name} low"], result[f"{name} high"] = _digits(cell.low), _digits(cell.high)
        else:
            result[name] = _digits(cell) if isinstance(cell, float) else cell
    return result


def _digits(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else ""


def markdown_cell(cell: Cell) -> str:
    """One cell as text.

    >>> markdown_cell(Interval(0.123, 0.11, 0.134)), markdown_cell(None)
    ('12.3 [11.0, 13.4]', '')
    """
    if isinstance(cell, Interval):
        return _limited(cell, lambda value: f"{100 * value:.1f}")
    if isinstance(cell, Measured):
        return _limited(cell.interval, cell.measure.text)
    if isinstance(cell, float):
        return f"{cell:.4g}" if math.isfinite(cell) else "–"
    return "" if cell is None else str(cell).replace("|", "\\|")


def _in_file_only(cell: Cell) -> bool:
    return isinstance(cell, Measured) and cell.measure.show == "page"


def _limited(cell: Interval, text: Callable[[float], str]) -> str:
    if not math.isfinite(cell.estimate):
        return "–"
    limits = f" [{text(cell.low)}, {text(cell.high)}]" if math.isfinite(cell.low) else ""
    return f"{text(cell.shown)}{limits}"
