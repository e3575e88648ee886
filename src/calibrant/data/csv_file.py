"""CSV files: columns of numbers and a column of labels; whole or in batches of rows."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import Source
from calibrant.data.convert import encode_labels
from calibrant.files import open_regular
from calibrant.slots import register

LABELS = ("label", "labels", "y", "target", "targets", "class")
SUFFIXES = (".csv", ".tsv")
READ_ROWS = 4096
_MISSING = frozenset(("", "na", "n/a", "nan", "none", "null", "?"))
_IDENTIFIER = re.compile(r"(?i:(.*[_\s-])?(id|ids|uuid|guid)|index|unnamed: 0)|.*[a-z]I[dD]", re.ASCII)
_LARGEST = float(np.finfo(np.float32).max)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)  # what 64 bits hold; longer ones are names


@dataclass(frozen=True)
class CsvColumns:
    """The places of the columns that are read, in the header `names`."""

    names: tuple[str, ...]
    features: tuple[int, ...]
    label: int | None
    id: int | None

    def described(self) -> dict[str, Any]:
        """Their names, by what they are used for."""
        read = {*self.features, self.label, self.id}
        return {
            "used": [self.names[place] for place in self.features],
            "label": None if self.label is None else self.names[self.label],
            "id": None if self.id is None else self.names[self.id],
            "ignored": [name or "(no name)" for place, name in enumerate(self.names) if place not in read],
        }


def csv_files(path: Path, part: str | None) -> list[Path]:
    """The files of `part` (None: all) at `path`, a file or a folder of files."""
    if not path.is_dir():
        return [path]
    found = sorted(file for suffix in SUFFIXES for file in path.glob(f"{part or ''}*{suffix}"))
    if not found:
        raise DataError(f"there is no CSV file at {path}; check the path")
    return found


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of the header and of every row; rows that are not of the header's length are refused."""
    try:
        with open_regular(path) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
            first = file.readline(csv.field_size_limit())
            file.seek(0)
            tabs, semicolons = path.suffix.lower() == ".tsv", ";" in first and "," not in first
            reader = csv.reader(file, delimiter="\t" if tabs else ";" if semicolons else ",", strict=True)
            width = 0
            for cells in reader:
                width = width or len(cells)
                if not cells:
                    continue  # an empty line
                if len(cells) != width:
                    raise DataError(
                        f"{path} has {len(cells)} cells in line {reader.line_num}, but its header has {width};"
                        " correct the line, and quote cells that hold the delimiter"
                    )
                yield reader.line_num, cells
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path") from None
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path} cannot be read as CSV ({error}); write it again as UTF-8 text") from None


def _header(path: Path) -> tuple[str, ...]:
    names = tuple(name.strip() for name in next(_rows(path), (0, []))[1])
    if not names:
        raise DataError(f"{path} is empty; it needs a header with the names of the columns, then rows")
    twice = next((name for place, name in enumerate(names) if name and name in names[:place]), None)
    if twice is not None:
        raise DataError(f"{path} has two columns named {twice!r}; rename one")
    return names


def _cell(cell: str, path: Path, name: str, line: int) -> float:
    """A cell's number; what is none is refused, by its column and line."""
    text = cell.strip()
    if text.lower() in _MISSING:
        raise DataError(f"{path} has no value in column {name!r} of line {line}; fill it in or remove the row")
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > _LARGEST:
        raise DataError(
            f"{path} holds {text[:40]!r} in column {name!r} of line {line}, which is not a number; correct it, encode"
            f" the column as numbers, or leave it out with ignore={name}"
        )
    return value


def _label_values(cells: list[str], path: Path, name: str, lines: list[int]) -> NDArray[Any]:
    """Labels as text, one a row, none missing."""
    for cell, line in zip(cells, lines):
        if not cell.strip():
            raise DataError(f"{path} has no value in column {name!r} of line {line}; fill it in or remove the row")
    return np.array([cell.strip() for cell in cells], object)  # an array of text is as wide as its longest cell


@register("source", "csv")
class CsvSource(Source):
    """A CSV file (or .tsv) with a header, or a folder of such files.

    Every column but the label must hold numbers; `ignore` leaves columns out, `features` names those to take, both
    separated by commas. A column that is named like an identifier has to be in one of them: a network would learn it.
    """

    spec = "csv:FILE?label=COLUMN&ignore=A,B"
    about = "columns of numbers, and labels"
    parts = "as files train*.csv and test*.csv in a folder, if both are there"

    def __init__(
        self,
        path: str,
        *,
        label: str | None = None,
        ignore: str | None = None,
        features: str | None = None,
        id: str | None = None,  # noqa: A002  (the name of the option)
    ) -> None:
        super().__init__(path)
        self.label, self.id = label, id
        self.ignored = tuple(ignore.split(",")) if ignore else ()
        self.features = tuple(features.split(",")) if features else ()

    @classmethod
    def claims(cls, path: Path) -> int:
        """Files that end in .csv or .tsv."""
        return 2 * (path.suffix.lower() in SUFFIXES)

    def has_parts(self) -> bool:
        """Whether the folder holds files of both parts, as train.csv and test.csv."""
        return self.path.is_dir() and all(
            any(any(self.path.glob(f"{part}*{suffix}")) for suffix in SUFFIXES) for part in ("train", "test")
        )

    def _choose(self, file: Path, *, labeled: bool = True) -> CsvColumns:
        """Which columns are read; without `labeled`, as for prediction, label and ignored ones need not be there."""
        names = _header(file)
        optional = () if labeled else (self.label, *self.ignored)
        for name in (*self.features, *self.ignored, self.label, self.id):
            if name is not None and name not in names and name not in optional:
                raise DataError(f"{file} has no column {name!r}; it has {', '.join(names)}")
        label = self.label or next((name for name in LABELS if name in names), None)
        left = {"", label, self.id, *self.ignored}
        chosen = self.features or tuple(name for name in names if name not in left)
        identifier = next((name for name in chosen if _IDENTIFIER.fullmatch(name)), None)
        if identifier is not None and not self.features:
            raise DataError(
                f"{file} has a column {identifier!r}, which looks like an identifier; leave it out with"
                f" ignore={identifier}, or name the columns to use with features="
            )
        if not chosen:
            raise DataError(f"{file} has no columns of features beside {', '.join(filter(None, left))}; check ignore=")
        place = {name: index for index, name in enumerate(names)}
        ident = None if self.id is None else place[self.id]
        return CsvColumns(names, tuple(place[name] for name in chosen), place.get(label or ""), ident)

    def columns(self) -> Mapping[str, Any]:
        """The columns that are read, and those that are not."""
        return self._choose(csv_files(self.path, None)[0]).described()

    def _blocks(self, file: Path, chosen: CsvColumns, rows: int) -> Iterator[tuple[list[int], list[list[str]]]]:
        """(lines, cells) of at most `rows` rows at a time."""
        lines: list[int] = []
        cells: list[list[str]] = []
        source = _rows(file)
        next(source)
        for line, row in source:
            lines.append(line)
            cells.append(row)
            if len(lines) == rows:
                yield lines, cells
                lines, cells = [], []
        if lines:
            yield lines, cells

    @staticmethod
    def _inputs(file: Path, chosen: CsvColumns, lines: list[int], cells: list[list[str]]) -> Tensor:
        places = [(place, chosen.names[place]) for place in chosen.features]
        table = [[_cell(row[p], file, name, line) for p, name in places] for line, row in zip(lines, cells)]
        return torch.tensor(table, dtype=torch.float32)

    def read(self, part: str | None) -> ArrayData:
        """All rows of `part` in memory; names of classes are numbered over all parts."""
        inputs: list[Tensor] = []
        labels: list[NDArray[Any]] = []
        found = csv_files(self.path, part)
        first = self._choose(found[0]).described()
        for file in found:
            chosen = self._choose(file)
            if chosen.described()["used"] != first["used"] or chosen.described()["label"] != first["label"]:
                raise DataError(f"{file} has other columns than {found[0]}; give all files one header")
            for lines, cells in self._blocks(file, chosen, READ_ROWS):
                inputs.append(self._inputs(file, chosen, lines, cells))
                if chosen.label is not None:
                    values = [row[chosen.label] for row in cells]
                    labels.append(_label_values(values, file, chosen.names[chosen.label], lines))
        if not inputs:
            raise DataError(f"{self.path} holds no rows; write it again")
        if not labels:
            return ArrayData(torch.cat(inputs), None, None, str(self.path))
        target, classes = self._encoded(np.concatenate(labels), str(first["label"]))
        return ArrayData(torch.cat(inputs), target, classes, str(self.path))

    def _encoded(self, values: NDArray[Any], label: str) -> Any:
        """Labels as class indices: integers as they are; names in the order of the names in all files."""
        name = f"column {label!r} of {self.path}"
        known = set(values.tolist())
        for file in csv_files(self.path, None) if self.path.is_dir() else ():
            if label in (names := _header(file)):
                known |= {cells[names.index(label)].strip() for _, cells in islice(_rows(file), 1, None)}
        if all(_INTEGER.fullmatch(value) for value in known):
            return encode_labels(values.astype(np.int64), name)
        return encode_labels(values, name, tuple(sorted(known)))

    def stream(self, part: str | None, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(ids, inputs), with no more than one batch in memory; ids are those of column `id`, else row numbers."""
        row = 0
        for file in csv_files(self.path, part):
            chosen = self._choose(file, labeled=False)
            for lines, cells in self._blocks(file, chosen, batch_rows):
                numbers = [str(row + index) for index in range(len(lines))]
                ids = numbers if chosen.id is None else [cell[chosen.id].strip() for cell in cells]
                yield ids, self._inputs(file, chosen, lines, cells)
                row += len(lines)
