"""Tables that Arrow reads: CSV and TSV with any usual separator, Parquet, and data frames."""

from __future__ import annotations

import codecs
import csv
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.audit.tables import BLOCK_ROWS, HEAD_ROWS, Table, TablePart
from calibrant.files.spreadsheet import MARKED

BLOCK_BYTES = 2**23
HEAD_BYTES = 2**16
NOTHING = ["", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"]
"""What a text file writes where there is no value; also what R and pandas write."""
_COMMA_NUMBER = re.compile(r"^\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*$")


class ArrowTable(Table):
    """A table whose batches come from Arrow."""

    @abstractmethod
    def batches(self, wanted: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[tuple[Any, float]]:
        """Record batches of about `rows` rows, with the share of the table that was read."""

    def parts(
        self, wanted: Sequence[str], numbers: Sequence[str], labels: Sequence[str], loose: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Rows without a label are left out while columns still have their types."""
        import pyarrow as pa

        first = 0
        try:
            for batch, done in self.batches(wanted, numbers, BLOCK_ROWS):
                size, known = len(batch), np.ones(len(batch), bool)
                for name in labels:
                    known &= _flat(batch.column(name).is_valid())
                kept = np.flatnonzero(known)
                if len(kept) < size:
                    batch = batch.take(pa.array(kept))
                columns = {
                    name: self._values(batch.column(name), name, first + kept, loose=name in loose) for name in wanted
                }
                if size:
                    yield TablePart(columns, kept, size, done)
                first += size
        except (pa.ArrowException, OSError) as error:
            raise broken(self.where, error) from None

    def head(self, wanted: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The first rows, with NaN or None where there is no value."""
        import pyarrow as pa

        try:
            batch, _ = next(iter(self.batches(wanted, (), HEAD_ROWS)), (None, 0.0))
        except (pa.ArrowException, OSError) as error:
            raise broken(self.where, error) from None
        if batch is None or not len(batch):
            return {}
        places = {name: place for place, name in enumerate(batch.schema.names)}  # several columns may have no name
        return {name: self._first(batch.column(places[name]).slice(0, HEAD_ROWS)) for name in wanted}

    @staticmethod
    def _first(column: Any) -> NDArray[Any]:
        """The first values; of lists that are not alike, the first."""
        try:
            return _array(column)
        except ValueError:
            return _array(column.slice(0, 1))

    def _values(self, column: Any, name: str, rows: NDArray[np.int64], *, loose: bool) -> NDArray[Any]:
        """A column as an array, (n,) or for lists of equal length (n, C)."""
        if column.null_count and not loose:
            row = rows[np.flatnonzero(_flat(column.is_null()))[0]]
            raise InputError(f"{self.where} has no value in column {name!r} of row {row}; fill it in or remove the row")
        try:
            return _array(column)
        except ValueError:
            where = f"{self.where} has lists of different lengths in column {name!r}"
            raise InputError(f"{where}; every row needs all classes") from None


class CsvTable(ArrowTable):
    """CSV or TSV; the separator is that of the first line, the decimal sign that of the first numbers."""

    typed = False

    def __init__(self, path: Path) -> None:
        self.path, self.where, self.stem = path, str(path), path.stem
        with path.open("rb") as file:
            start = file.read(HEAD_BYTES)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise InputError(f"{path} is text in UTF-16; {_AS_UTF8}")
        if b"\0" in start[:4096]:
            raise InputError(f"{path} is not a table that can be read (it holds binary data, not text)")
        lines = start.decode("utf-8-sig", "replace").splitlines()[:20] or [""]
        usual = "\t" if path.suffix.lower() == ".tsv" else ","
        self.separator = max((usual, ",", ";", "\t", "|"), key=lambda one: len(_cells(lines[0], one)))
        cells = [cell for line in lines[1:] for cell in _cells(line, self.separator)]
        self.decimal = "," if self.separator != "," and any(_COMMA_NUMBER.match(cell) for cell in cells) else "."
        self.lists: tuple[str, ...] = ()
        self.signed: tuple[str, ...] = ()
        self.names = tuple(self._names())
        self.checked_names()
        first = super().head(self.names)
        self.lists = tuple(name for name, values in first.items() if str(values[0]).lstrip().startswith("["))
        self.signed = tuple(name for name, values in first.items() if str(values[0]).rstrip().endswith("%"))

    def _names(self) -> list[str]:
        import pyarrow as pa

        try:
            with self._open(self.path, {}) as reader:
                names: list[str] = reader.schema.names
                return names
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise broken(self.where, error) from None

    def _open(self, file: Any, convert: dict[str, Any], block_bytes: int = BLOCK_BYTES) -> Any:
        from pyarrow import csv as arrow_csv

        return arrow_csv.open_csv(
            file,
            read_options=arrow_csv.ReadOptions(block_size=block_bytes, use_threads=False),
            parse_options=arrow_csv.ParseOptions(delimiter=self.separator),
            convert_options=arrow_csv.ConvertOptions(
                null_values=NOTHING, strings_can_be_null=True, decimal_point=self.decimal, **convert
            ),
        )

    def batches(self, wanted: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[tuple[Any, float]]:
        """Blocks of 8 MB, and the share of the file's bytes that were read; text without the marks of our CSV files."""
        import pyarrow as pa
        import pyarrow.compute as pc

        size = self.path.stat().st_size
        texts = (*self.lists, *self.signed)  # lists, and percentages with their sign
        types = {name: pa.string() if name in texts else pa.float64() for name in (*numbers, *texts)}
        convert = {"include_columns": list(wanted), "column_types": types}
        with self.path.open("rb") as file, self._open(file, convert) as reader:
            for batch in reader:
                for place in (list(wanted).index(name) for name in wanted if name in self.lists):
                    batch = batch.set_column(place, wanted[place], _parsed(batch.column(place)))
                for place, name in enumerate(wanted):
                    if pa.types.is_binary(batch.column(place).type):  # which Arrow takes for other encodings
                        raise InputError(f"{self.where} has letters in {name!r} that are not in UTF-8; {_AS_UTF8}")
                    if pa.types.is_string(batch.column(place).type):
                        text = pc.replace_substring_regex(batch.column(place), MARKED, r"\1")
                        batch = batch.set_column(place, name, text)
                yield batch, min(file.tell() / size, 1.0) if not file.closed else 1.0


class ParquetTable(ArrowTable):
    """Parquet."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.where, self.stem = path, str(path), path.stem
        try:
            self.names = tuple(pq.read_schema(path).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise broken(self.where, error) from None
        self.checked_names()

    def batches(self, wanted: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[tuple[Any, float]]:
        """Batches of `rows` rows, whatever the row groups are."""
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.path) as file:
            total, seen = max(file.metadata.num_rows, 1), 0
            for batch in file.iter_batches(batch_size=rows, columns=list(wanted)):
                seen += len(batch)
                yield batch, seen / total


class FrameTable(ArrowTable):
    """A data frame in memory: of pandas, or anything that Arrow takes (`__arrow_c_stream__`, `__dataframe__`)."""

    def __init__(self, frame: Any, name: str = "frame") -> None:
        self.frame, self.where, self.stem = frame, f"the {name}", name
        self.pandas = hasattr(frame, "iloc") and hasattr(frame, "columns")
        columns = frame.columns if self.pandas else self._arrow.column_names
        self.names = tuple(map(str, columns))
        self.checked_names()

    @cached_property
    def _arrow(self) -> Any:
        import pyarrow as pa

        if hasattr(self.frame, "__arrow_c_stream__"):
            return pa.table(self.frame)
        from pyarrow.interchange import from_dataframe

        return from_dataframe(self.frame)

    def batches(self, wanted: Sequence[str], numbers: Sequence[str], rows: int) -> Iterator[tuple[Any, float]]:
        """Slices; of a pandas frame only these are converted, one after the other."""
        import pyarrow as pa

        places = [self.names.index(name) for name in wanted]
        total = len(self.frame) if self.pandas else self._arrow.num_rows
        for start in range(0, total, rows):
            if self.pandas:
                part = self.frame.iloc[start : start + rows, places]
                arrays = [self._converted(part.iloc[:, place], name) for place, name in enumerate(wanted)]
                table = pa.table(arrays, names=list(wanted))
            else:
                table = self._arrow.select(places).slice(start, rows)
            done = min((start + rows) / total, 1.0)
            yield from ((batch, done) for batch in table.combine_chunks().to_batches())

    def _converted(self, values: Any, name: str) -> Any:
        import pyarrow as pa

        try:
            return pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError):
            raise InputError(f"{self.where} holds values of several kinds in {name!r}; write them alike") from None


_AS_UTF8 = "save it in UTF-8 (in Excel, as 'CSV UTF-8')"


def broken(where: str, error: Exception) -> InputError:
    """The sentence for a table that cannot be read."""
    if isinstance(error, UnicodeDecodeError) and error.encoding == "utf-8" and not where.lower().endswith(".parquet"):
        return InputError(f"{where} has letters that are not in UTF-8; {_AS_UTF8}")
    return InputError(f"{where} is not a table that can be read ({str(error).splitlines()[0].rstrip('.')})")


def _cells(line: str, separator: str) -> list[str]:
    return next(csv.reader([line], delimiter=separator), [])


def _parsed(texts: Any) -> Any:
    """Lists of numbers of texts such as `[0.9, 0.1]`, which pandas writes, or `[0.9 0.1]`, which NumPy prints."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.utf8_trim(pc.replace_substring_regex(texts, r"[\[\],\s]+", " "), " ")
    parts = pc.split_pattern(plain, " ")
    return pa.ListArray.from_arrays(parts.offsets, parts.values.cast(pa.float64()))


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _decoded(column: Any) -> Any:
    """`column` with the values of a categorical one, and with plain numbers for decimals."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _array(column: Any) -> NDArray[Any]:
    """(n,), or for lists (n, C); a ValueError where their lengths differ."""
    if not _is_list(column.type):
        return _flat(_decoded(column))
    if hasattr(column, "value_lengths") and len(np.unique(_flat(column.value_lengths()))) > 1:
        raise InputError("lists of different lengths")
    return _flat(column.flatten()).reshape(len(column), -1)


def _flat(column: Any) -> NDArray[Any]:
    """(n,), with NaN or None where there is no value; as of Arrow's `to_numpy`, which would import pandas."""
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_boolean(kind) and not column.null_count:
        return np.from_dlpack(column.cast(pa.uint8())).astype(bool)
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if types.is_integer(kind) or types.is_floating(kind):
        known = column.cast(pa.float64()).fill_null(np.nan) if column.null_count else column
        return np.asarray(np.from_dlpack(known))
    if types.is_string(kind) or types.is_large_string(kind):
        coded = column.dictionary_encode()
        texts = np.array([*coded.dictionary.to_pylist(), None], object)
        return np.asarray(texts[_flat(coded.indices.fill_null(len(texts) - 1))])
    return np.asarray(column.to_numpy(zero_copy_only=False))
