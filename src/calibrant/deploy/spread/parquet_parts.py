"""Parquet files of any size, local or at a URI, as parts: ranges of rows that can be read and decided on their own.

A part begins at a multiple of the batch size within its file, so that its batches, and with them every decision, are
those of one process that reads the file from its start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from calibrant.data import DataError, Spec, parquet
from calibrant.data.images import ImageForm


@dataclass(frozen=True)
class FilePart:
    """Rows `start` to `start + rows` of `file`; `first` is the number of the first of them over all files."""

    number: int
    file: str
    start: int
    rows: int
    first: int

    @property
    def name(self) -> str:
        """Of the file with its results: the same for every attempt, and in the order of the input.

        >>> FilePart(3, "in.parquet", 0, 10, 300).name
        'part-000003.parquet'
        """
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True)
class ParquetInput:
    """Files in their order, how many rows each has, and how their columns are read."""

    filesystem: Any
    files: tuple[str, ...]
    rows: tuple[int, ...]
    options: Mapping[str, str]

    @classmethod
    def open(cls, spec: str) -> ParquetInput:
        """`FILE.parquet`, a folder of such, `parquet:PATH?id=key`, or the same with a URI (s3://, gs://, file://)."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        head, mark, query = spec.removeprefix("parquet:").partition("?")
        remote = "://" in head
        parsed = Spec.parse(f"parquet:{head}{mark}{query}" if remote else spec)
        if parsed.kind != "parquet":
            raise DataError(f"engine ray reads Parquet files, not {parsed.kind}; use the local engine for {spec}")
        filesystem, files = _remote(head) if remote else _local(parsed.path)
        try:
            rows = tuple(pq.read_metadata(file, filesystem=filesystem).num_rows for file in files)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{spec} holds a file that is not whole Parquet ({str(error).splitlines()[0]})") from None
        if not sum(rows):
            raise DataError(f"{spec} holds no inputs")
        return cls(filesystem, files, rows, parsed.options)

    def parts(self, part_rows: int) -> list[FilePart]:
        """All rows, in parts of at most `part_rows`."""
        found: list[FilePart] = []
        first = 0
        for file, rows in zip(self.files, self.rows):
            for start in range(0, rows, part_rows):
                found.append(FilePart(len(found), file, start, min(part_rows, rows - start), first + start))
            first += rows
        return found

    def read(self, part: FilePart, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(ids, inputs) of `part` in batches; ids are those of the column `id`, else row numbers over all files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        options = dict(self.options)
        form = ImageForm.parse(*(options.pop(name, None) for name in ("size", "color", "crop", "interpolation")))
        path = Path(part.file)
        try:
            with self.filesystem.open_input_file(part.file) as source:
                file = pq.ParquetFile(source)
                columns = _columns(file.schema_arrow, path, options)
                start = part.start
                for batch in _batches(file, part, columns, batch_rows):
                    block = parquet.Block(batch, path, start)
                    inputs = block.inputs(columns, form)
                    own = block.column(columns.id).to_pylist() if columns.id else None
                    first = part.first + start - part.start
                    yield [str(value) for value in own or range(first, first + len(batch))], inputs
                    start += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is damaged ({str(error).splitlines()[0]}); write it again") from None


def _local(path: str) -> tuple[Any, tuple[str, ...]]:
    from pyarrow import fs

    found = parquet.files(Path(path).expanduser().absolute(), None)
    return fs.LocalFileSystem(), tuple(str(file) for file in found)


def _remote(uri: str) -> tuple[Any, tuple[str, ...]]:
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
        info = filesystem.get_file_info(path)
        listed = [info]
        if info.type == fs.FileType.Directory:
            listed = sorted(filesystem.get_file_info(fs.FileSelector(path)), key=lambda one: one.path)
            listed = [one for one in listed if one.is_file and one.path.endswith(".parquet")]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{uri} cannot be read: {str(error).splitlines()[0]}") from None
    if not listed or not listed[0].is_file:
        raise DataError(f"there is no Parquet file at {uri}; check the address")
    return filesystem, tuple(one.path for one in listed)


def _columns(schema: Any, path: Path, options: Mapping[str, str]) -> parquet.Columns:
    label = options.get("label")
    chosen = parquet.choose(
        schema,
        path,
        label=label if label in schema.names else None,  # what is to be predicted need not have labels
        image=options.get("image"),
        features=options.get("features"),
        ident=options.get("id"),
        ignore=options.get("ignore"),
    )
    return replace(chosen, label=None)


def _batches(file: Any, part: FilePart, columns: parquet.Columns, batch_rows: int) -> Iterator[Any]:
    """The rows of `part` in batches of exactly `batch_rows`, but for the last."""
    import pyarrow as pa

    names = list(dict.fromkeys([*columns.inputs, *([columns.id] if columns.id else [])]))
    groups, skip = _row_groups(file.metadata, part)
    left, held = part.rows, []
    waiting = 0
    for batch in file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=names):
        batch, skip = batch.slice(skip), max(0, skip - len(batch))
        batch = batch.slice(0, left)
        left, waiting = left - len(batch), waiting + len(batch)
        held.append(batch)
        while waiting >= batch_rows or (left == 0 and waiting):
            table = pa.Table.from_batches(held)
            size = min(batch_rows, waiting)
            yield table.slice(0, size).combine_chunks().to_batches()[0]
            held, waiting = table.slice(size).to_batches(), waiting - size
        if left == 0:
            return


def _row_groups(metadata: Any, part: FilePart) -> tuple[list[int], int]:
    """The row groups that hold the rows of `part`, and how many rows to skip in them."""
    groups: list[int] = []
    skip = at = 0
    for index in range(metadata.num_row_groups):
        rows = metadata.row_group(index).num_rows
        if at < part.start + part.rows and at + rows > part.start:
            if not groups:
                skip = part.start - at
            groups.append(index)
        at += rows
    return groups, skip
