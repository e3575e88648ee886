"""Tables of predictions, block by block: CSV, Parquet and NPZ of any length in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 2**17
BLOCK_BYTES = 2**23
KINDS = (".csv", ".tsv", ".parquet", ".npz")


@dataclass(frozen=True)
class TableBlock:
    """Some rows: the row of the table they start at, their columns by name, and the share of the table read so far."""

    start: int
    columns: dict[str, NDArray[Any]]
    done: float


@dataclass(frozen=True)
class Table:
    """A file of predictions and the names of its columns (of the arrays in an NPZ file)."""

    path: Path
    names: tuple[str, ...]

    @classmethod
    def open(cls, path: str | Path) -> Table:
        """Look at the file; one sentence if it is not there or is no table."""
        file = Path(path)
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give a file: {', '.join(KINDS)}")
        if not file.exists():
            raise ValueError(f"{file} does not exist; check the path")
        if file.suffix.lower() not in KINDS:
            raise ValueError(f"{file} is no table that can be read; give one that ends in {', '.join(KINDS)}")
        if file.stat().st_size == 0:
            raise ValueError(f"{file} is empty; write the predictions again")
        names = {".parquet": _parquet_names, ".npz": _npz_names}.get(file.suffix.lower(), _csv_names)(file)
        return cls(file, tuple(names))

    def blocks(self, wanted: Sequence[str], numbers: Sequence[str]) -> Iterator[TableBlock]:
        """The `wanted` columns; those in `numbers` must hold numbers."""
        kind = self.path.suffix.lower()
        if kind == ".npz":
            return _npz_blocks(self.path, wanted)
        batches = _parquet(self.path, wanted) if kind == ".parquet" else _csv(self.path, wanted, numbers)
        return _arrow_blocks(self.path, batches)


def _broken(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is not a table that can be read ({str(error).splitlines()[0].rstrip('.')})")


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _csv_names(path: Path) -> list[str]:
    from pyarrow import ArrowException, csv

    with path.open("rb") as file:
        if b"\0" in file.read(4096):
            raise ValueError(f"{path} is not a table that can be read (it holds binary data, not text)")
    try:
        with csv.open_csv(path, parse_options=csv.ParseOptions(delimiter=_delimiter(path))) as reader:
            names: list[str] = reader.schema.names
            return names
    except (ArrowException, UnicodeDecodeError) as error:
        raise _broken(path, error) from None


def _csv(path: Path, wanted: Sequence[str], numbers: Sequence[str]) -> Iterator[tuple[Any, float]]:
    """Batches, and the share of the file's bytes that were read."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.float64() for name in numbers}
    size = path.stat().st_size
    with (
        path.open("rb") as file,
        csv.open_csv(
            file,
            read_options=csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=_delimiter(path)),
            convert_options=csv.ConvertOptions(include_columns=list(wanted), column_types=types),
        ) as reader,
    ):
        for batch in reader:
            yield batch, min(file.tell() / size, 1.0) if not file.closed else 1.0


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names: list[str] = pq.read_schema(path).names
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None
    return names


def _parquet(path: Path, wanted: Sequence[str]) -> Iterator[tuple[Any, float]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        total, seen = max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=list(wanted)):
            seen += len(batch)
            yield batch, seen / total


def _arrow_blocks(path: Path, batches: Iterator[tuple[Any, float]]) -> Iterator[TableBlock]:
    import pyarrow as pa

    start = 0
    try:
        for batch, done in batches:
            columns = {name: _values(batch.column(i), path, name, start) for i, name in enumerate(batch.schema.names)}
            if len(batch):
                yield TableBlock(start, columns, done)
            start += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, error) from None


def _values(column: Any, path: Path, name: str, start: int) -> NDArray[Any]:
    """A column as an array, (n,) or for lists of equal length (n, C)."""
    import pyarrow as pa

    if column.null_count:
        row = start + int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise ValueError(f"{path} has no value in column {name!r} of row {row}; fill it in or remove the row")
    fixed = pa.types.is_fixed_size_list(column.type)
    if not (fixed or pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        result: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return result
    if not fixed and len({len(value) for value in column}) != 1:
        raise ValueError(f"{path} has lists of different lengths in column {name!r}; every row needs all classes")
    rows: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return rows


def _npz_names(path: Path) -> list[str]:
    from calibrant.data import npz

    with npz.opened(path) as archive:
        return npz.keys_of(archive)


def _npz_blocks(path: Path, wanted: Sequence[str]) -> Iterator[TableBlock]:
    from calibrant.data import npz

    with npz.opened(path) as archive:
        sizes = {name: archive.getinfo(f"{name}.npy").file_size for name in wanted}
        start, done = 0, 0
        for parts in zip(*(npz.blocks_of(archive, path, name, BLOCK_ROWS) for name in wanted), strict=True):
            lengths = {len(part) for part in parts}
            if len(lengths) != 1:
                raise ValueError(f"{path} holds arrays of different lengths: {', '.join(wanted)}")
            done += sum(part.nbytes for part in parts)
            yield TableBlock(start, dict(zip(wanted, parts)), min(done / max(sum(sizes.values()), 1), 1.0))
            start += lengths.pop()
