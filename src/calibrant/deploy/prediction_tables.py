"""Predictions for files of any size: read in batches, decided, written as a table, a row an input."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.data import DataError, ImageTransform, Spec, iter_batches, with_defaults
from calibrant.data.image_transform import COLORS
from calibrant.deploy import EarlyStopping, Predictor
from calibrant.files import RunError, cannot_write, whole, writable_file
from calibrant.files.spreadsheet import marked_rows

TableColumns = dict[str, list[Any]]
FORMATS = (".csv", ".parquet")


@dataclass(frozen=True)
class PredictionCount:
    """How many inputs were read and how many of the answers accepted, and the mean number of members asked."""

    inputs: int = 0
    accepted: int = 0
    members: float = 0.0


def predict_table(
    predictor: Predictor,
    spec: str,
    out: str | Path,
    *,
    batch_rows: int = 256,
    probabilities: bool = False,
    early: EarlyStopping | None = None,
    on_batch: Callable[[PredictionCount], None] | None = None,
) -> PredictionCount:
    """Decide on everything that `spec` names and write it to `out`, CSV or Parquet by its suffix.

    The columns are `id`, then those of `Decision.table`. Memory is bounded by one batch. The file appears under its
    name only when it is whole. Images are resized to what the network was trained on.
    """
    path, seen, accepted, members = Path(out), 0, 0, 0
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"out must end in {' or '.join(FORMATS)}, not {path.name!r}")
    count = PredictionCount()
    writable_file(path, files_read(spec))
    spec = with_defaults(spec, image_options(predictor))
    with _named(path), whole(path) as temporary, _writer(temporary, path.suffix.lower()) as write:
        for ids, inputs in iter_batches(spec, batch_rows):
            check_shape(predictor, spec, tuple(inputs.shape[1:]))
            decision = predictor(inputs, early=early).to("cpu")
            write({"id": ids, **decision.table(probabilities=probabilities)})
            seen, accepted = seen + len(decision), accepted + int(decision.accepted.sum())
            members += int(decision.members.sum())
            count = PredictionCount(seen, accepted, members / seen)
            if on_batch is not None:
                on_batch(count)
        if not seen:
            raise DataError(f"{spec} holds no inputs")
    return count


def files_read(*specs: str) -> list[Path]:
    """The tables and arrays that are read of `specs`, where each is one file or a folder of them."""
    found: list[Path] = []
    for spec in specs:
        parsed = Spec.parse(spec)
        path = Path(parsed.path)
        if parsed.path and parsed.kind != "folder":
            found += [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]
    return found


def image_options(predictor: Predictor) -> dict[str, str]:
    """The options of image sources, such as size=32x32, that are those of the network's own training images."""
    transform = predictor.transform
    if transform is None and predictor.backbone is not None and len(predictor.backbone.shape) == 3:
        channels, height, width = predictor.backbone.shape
        transform = ImageTransform((height, width), channels=channels) if channels in COLORS else None
    return transform.options() if isinstance(transform, ImageTransform) else {}


def check_shape(predictor: Predictor, name: str, shape: tuple[int, ...]) -> None:
    """Refuse inputs of another shape than the network was trained on, also where it could digest them.

    A transform brings them into that shape.
    """
    if predictor.transform is None and predictor.backbone is not None and shape != tuple(predictor.backbone.shape):
        raise DataError(
            f"{name} has inputs of shape {shape}, but the model was trained on {tuple(predictor.backbone.shape)};"
            " images are resized by ?size=32 after the path, and made gray by ?color=gray"
        )


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Inside, an error in writing, as on a full disk, names `path`; one in reading names what was read already."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise RunError(cannot_write(path, error)) from error


@contextlib.contextmanager
def _writer(path: Path, suffix: str) -> Iterator[Callable[[TableColumns], None]]:
    """A function that appends columns to the file `path`."""
    with contextlib.ExitStack() as stack:
        state: dict[str, Any] = {}

        def csv_rows(columns: TableColumns) -> None:
            if not state:
                file = stack.enter_context(path.open("w", newline="", encoding="utf-8"))
                state["writer"] = csv.writer(file, lineterminator="\n")
                state["writer"].writerows(marked_rows([columns]))
            state["writer"].writerows(marked_rows(zip(*columns.values())))

        def parquet_rows(columns: TableColumns) -> None:
            import pyarrow as pa
            import pyarrow.parquet as pq

            table = pa.table(columns)
            if not state:
                state["writer"] = stack.enter_context(pq.ParquetWriter(path, table.schema))
            state["writer"].write_table(table)

        yield csv_rows if suffix == ".csv" else parquet_rows
