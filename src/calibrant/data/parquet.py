"""Parquet files: a column of encoded images, or columns of features, and a column of labels; whole or in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant import InputError
from calibrant.data.arrays import ArrayData, DataError
from calibrant.data.base import Source
from calibrant.data.convert import as_inputs, encode_labels
from calibrant.data.images import ImageForm, decode, stack
from calibrant.files import open_regular
from calibrant.files.packing import check_packing
from calibrant.slots import register

LABELS = ("label", "labels", "y", "target", "targets", "class", "fine_label")
READ_ROWS = 4096
VALUE_BYTES = 8


@dataclass(frozen=True)
class Columns:
    """Which columns are read: one of encoded images or some of features, and that of the labels and of the ids."""

    image: str | None
    features: tuple[str, ...]
    label: str | None
    id: str | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that make up an input."""
        return self.features if self.image is None else (self.image,)


def has_parts(path: Path) -> bool:
    """Whether the folder holds files of both parts, as in train-00000-of-00001.parquet."""
    return path.is_dir() and all(any(path.glob(f"{part}*.parquet")) for part in ("train", "test"))


def files(path: Path, part: str | None) -> list[Path]:
    """The Parquet files of `part` (None: all) at `path`, a file or a folder of files."""
    found = [path] if path.is_file() else sorted(path.glob(f"{part or ''}*.parquet")) if path.is_dir() else []
    if not found:
        raise DataError(f"there is no Parquet file at {path}; check the path")
    return found


def _open(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        open_regular(path).close()
        file = pq.ParquetFile(path)
        _ = file.schema_arrow.names  # which need not be text
        return file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _not_whole(path, error) from None


def _not_whole(path: Path, error: Exception) -> DataError:
    return DataError(f"{path} is not a whole Parquet file ({str(error).splitlines()[0]}); write it again")


def _check_size(found: Sequence[Path], columns: Columns) -> None:
    """Refuse files whose metadata declare more values in `columns` than files of their size may stand for."""
    wanted = {*columns.inputs, columns.label, columns.id}
    values = 0
    for path in found:
        about = _open(path).metadata
        groups = (about.row_group(number) for number in range(about.num_row_groups))
        chunks = (group.column(number) for group in groups for number in range(group.num_columns))
        try:
            values += sum(chunk.num_values for chunk in chunks if chunk.path_in_schema.partition(".")[0] in wanted)
        except UnicodeDecodeError as error:  # names of its parts are their own, whatever those of the columns are
            raise _not_whole(path, error) from None
    _check_held(found, VALUE_BYTES * values)


def _check_held(found: Sequence[Path], held: int) -> None:
    """Refuse to hold more bytes in memory than what files of their size may stand for."""
    where = found[0] if len(found) == 1 else found[0].parent
    advice = "write it with use_dictionary=False, or give size= for images"
    try:
        check_packing(where, sum(file.stat().st_size for file in found), held, advice)
    except InputError as error:
        raise DataError(str(error)) from None


def _is_image(kind: Any) -> bool:
    """Whether a column of this type holds encoded images: bytes, or a structure with a field `bytes`."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _is_vector(kind: Any) -> bool:
    import pyarrow as pa

    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and _is_number(kind.value_type))


def choose(
    schema: Any,
    path: Path,
    *,
    label: str | None,
    image: str | None,
    features: str | None,
    ident: str | None,
    ignore: str | None = None,
) -> Columns:
    """The columns to read: those named, else the usual ones; see `docs/data.md`."""
    kinds = {field.name: field.type for field in schema}
    named = features.split(",") if features else []
    ignored = ignore.split(",") if ignore else []
    for name in (*named, image, label, ident):
        if name is not None and name not in kinds:
            raise DataError(f"{path} has no column {name!r}; it has {', '.join(kinds)}")
    label = label or next((name for name in LABELS if name in kinds), None)
    if image is None and not named:
        image = next((n for n, kind in kinds.items() if _is_image(kind) and n not in (ident, *ignored)), None)
    if image is not None:
        if not _is_image(kinds[image]):
            raise DataError(f"{path} holds {kinds[image]} in column {image!r}, not the bytes of image files")
        return Columns(image, (), label, ident)
    rest = [name for name in kinds if name not in (label, ident, *ignored)]
    chosen = named or [name for name in rest if _is_number(kinds[name])] or [n for n in rest if _is_vector(kinds[n])]
    bad = next((name for name in chosen if not (_is_number(kinds[name]) or _is_vector(kinds[name]))), None)
    if bad is not None:
        raise DataError(f"{path} holds {kinds[bad]} in column {bad!r}, not numbers; leave it out of features=")
    if not chosen or (len(chosen) > 1 and any(_is_vector(kinds[name]) for name in chosen)):
        raise DataError(f"{path} must have columns of numbers, one column of lists, or one of image bytes")
    return Columns(None, tuple(chosen), label, ident)


@dataclass(frozen=True)
class Block:
    """Some rows of a file, which start at row `start` of it."""

    batch: Any
    path: Path
    start: int

    def rows(self) -> range:
        """Their numbers in the file."""
        return range(self.start, self.start + len(self.batch))

    def column(self, name: str) -> Any:
        """The values of one column, all of them there."""
        column = self.batch.column(self.batch.schema.get_field_index(name))
        if column.null_count:
            row = next(row for row, value in zip(self.rows(), column) if not value.is_valid)
            raise DataError(f"{self.path} has no value in column {name!r} of row {row}; fill it in or remove the row")
        return column

    def inputs(self, columns: Columns, form: ImageForm) -> Tensor:
        """What the network is given: features (rows, F) or images (rows, C, H, W)."""
        if columns.image is None:
            return _features(self, columns.features)
        return _images(self, columns.image, form)


def _features(block: Block, names: tuple[str, ...]) -> Tensor:
    found = [block.column(name) for name in names]
    where = f"{block.path} from row {block.start} on"
    if len(found) > 1 or _is_number(found[0].type):
        table = [column.to_numpy(zero_copy_only=False).astype(np.float32) for column in found]
        return as_inputs(np.stack(table, 1), where)
    if len({len(value) for value in found[0]}) != 1:
        raise DataError(f"{block.path} has lists of different lengths in column {names[0]!r}; pad them to one length")
    return as_inputs(found[0].flatten().to_numpy(zero_copy_only=False).reshape(len(block.batch), -1), where)


def _images(block: Block, column: str, form: ImageForm) -> Tensor:
    images, names = [], [f"in row {row} of {block.path}" for row in block.rows()]
    held = 0
    for name, cell in zip(names, block.column(column)):
        value = cell.as_py()  # one at a time: a dictionary may hold one large image for many rows
        content = value["bytes"] if isinstance(value, dict) else value
        if content is None:
            raise DataError(f"image {name} has a path but no bytes; store the bytes in the file")
        images.append(decode(content, name, form))
        held += images[-1].nbytes
        _check_held([block.path], held)
    return stack(images, names)


def _label_array(cells: list[Any]) -> NDArray[Any]:
    """Names as objects: an array of text is as wide as its longest cell."""
    return np.array(cells, object) if any(isinstance(cell, str) for cell in cells) else np.asarray(cells)


def _batches(path: Path, columns: Columns, form: ImageForm, rows: int) -> Iterator[tuple[list[str], Tensor, Any]]:
    """(ids, inputs, labels or None) of one file, batch by batch."""
    import pyarrow as pa

    names = [name for name in (*columns.inputs, columns.label, columns.id) if name is not None]
    start = 0
    try:
        for batch in _open(path).iter_batches(batch_size=rows, columns=names):
            block = Block(batch, path, start)
            inputs = block.inputs(columns, form)
            labels = _label_array(block.column(columns.label).to_pylist()) if columns.label else None
            ids = block.column(columns.id).to_pylist() if columns.id else block.rows()
            yield [str(value) for value in ids], inputs, labels
            start += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged ({str(error).splitlines()[0]}); write it again") from None


def _known_classes(path: Path, label: str) -> tuple[str, ...]:
    """The distinct names in the label column over all parts, so that a class has one number everywhere."""
    found: set[str] = set()
    for file in files(path, None):
        found.update(str(value) for value in _open(file).read(columns=[label]).column(0).unique().to_pylist())
    return tuple(sorted(found))


@register("source", "parquet")
class ParquetSource(Source):
    """A Parquet file, or a folder of files."""

    spec = "parquet:FILE?label=COLUMN"
    about = "image bytes or feature columns, and labels"
    parts = "as files train*.parquet and test*.parquet in a folder, if both are there"

    def __init__(
        self,
        path: str,
        *,
        label: str | None = None,
        image: str | None = None,
        features: str | None = None,
        id: str | None = None,  # noqa: A002  (the name of the option)
        size: str | None = None,
        color: str | None = None,
        crop: str | None = None,
        interpolation: str | None = None,
        ignore: str | None = None,
    ) -> None:
        super().__init__(path)
        self.ignore = ignore
        self.label, self.image, self.features, self.id = label, image, features, id
        self.form = ImageForm.parse(size, color, crop, interpolation)

    @classmethod
    def claims(cls, path: Path) -> int:
        """Files that end in .parquet, and folders that hold such."""
        return 2 * (path.suffix.lower() == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))))

    def has_parts(self) -> bool:
        """Whether the folder holds files of both parts."""
        return has_parts(self.path)

    def _choose(self, schema: Any, file: Path, label: str | None, ident: str | None) -> Columns:
        named = {"image": self.image, "features": self.features, "ignore": self.ignore}
        return choose(schema, file, label=label, ident=ident, **named)

    def columns(self) -> Mapping[str, Any]:
        """The columns that are read, and those that are not."""
        file = files(self.path, None)[0]
        schema = _open(file).schema_arrow
        chosen = self._choose(schema, file, self.label, self.id)
        read = {*chosen.inputs, chosen.label, chosen.id}
        ignored = [name for name in schema.names if name not in read]
        return {"used": list(chosen.inputs), "label": chosen.label, "id": chosen.id, "ignored": ignored}

    def read(self, part: str | None) -> ArrayData:
        """All rows of `part` in memory."""
        found = files(self.path, part)
        columns = self._choose(_open(found[0]).schema_arrow, found[0], self.label, None)
        _check_size(found, columns)
        inputs: list[Tensor] = []
        labels: list[NDArray[Any]] = []
        held = 0
        for file in found:
            for _, rows, target in _batches(file, columns, self.form, READ_ROWS):
                if inputs and rows.shape[1:] != inputs[0].shape[1:]:
                    raise DataError(
                        f"{file} has inputs of shape {tuple(rows.shape[1:])} after {tuple(inputs[0].shape[1:])};"
                        " give size= for images, or pad the rows"
                    )
                held += rows.nbytes
                _check_held(found, held)
                inputs.append(rows)
                labels += [] if target is None else [target]
        if not inputs:
            raise DataError(f"{self.path} holds no rows; write it again")
        if columns.label is None:
            return ArrayData(torch.cat(inputs), None, None, str(self.path))
        values = np.concatenate(labels)
        known = _known_classes(self.path, columns.label) if values.dtype.kind in "UO" else None
        target, classes = encode_labels(values, f"column {columns.label!r} of {self.path}", known)
        return ArrayData(torch.cat(inputs), target, classes, str(self.path))

    def stream(self, part: str | None, batch_rows: int) -> Iterator[tuple[list[str], Tensor]]:
        """(ids, inputs), with no more than one batch in memory; ids are those of column `id`, else row numbers."""
        row = 0
        for file in files(self.path, part):
            schema = _open(file).schema_arrow
            label = self.label if self.label in schema.names else None  # what is to be predicted need not have labels
            columns = replace(self._choose(schema, file, label, self.id), label=None)
            _check_size([file], columns)
            for ids, inputs, _ in _batches(file, columns, self.form, batch_rows):
                yield ids if self.id is not None else [str(row + index) for index in range(len(ids))], inputs
                row += len(ids)
