"""Tables of measured numbers: CSV in fractions with the limits of every interval, Markdown in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant.files import write_bytes, write_csv
from calibrant.metrics import Interval

Cell = Interval | float | int | str | None


@dataclass(frozen=True)
class StudyTable:
    """Rows of cells by column; `name` is that of its files, `note` a sentence below it.

    An `Interval` is a fraction: CSV gets three columns, Markdown `12.3 [11.0, 13.4]` in percent. Other numbers are
    written as they are.
    """

    rows: Sequence[Mapping[str, Cell]]
    name: str = "table"
    note: str = ""

    @property
    def columns(self) -> list[str]:
        """All columns, in the order in which they first occur."""
        return list(dict.fromkeys(column for row in self.rows for column in row))

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
        if not math.isfinite(cell.estimate):
            return "–"
        limits = f" [{100 * cell.low:.1f}, {100 * cell.high:.1f}]" if math.isfinite(cell.low) else ""
        return f"{100 * cell.estimate:.1f}{limits}"
    if isinstance(cell, float):
        return f"{cell:.4g}" if math.isfinite(cell) else "–"
    return "" if cell is None else str(cell).replace("|", "\\|")
