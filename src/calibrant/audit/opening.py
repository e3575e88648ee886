"""What `audit` was given, as tables: files, frames, arrays, our own records; one table, and any number of OOD data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from calibrant import InputError, install_line
from calibrant.audit.array_table import ArrayTable, as_array
from calibrant.audit.arrow_tables import CsvTable, FrameTable, ParquetTable
from calibrant.audit.forecasts import KINDS
from calibrant.audit.npz_table import NpzTable
from calibrant.audit.roles import Wishes
from calibrant.audit.tables import Table
from calibrant.predictions import Predictions

READERS: dict[str, type[CsvTable] | type[ParquetTable] | type[NpzTable]] = {
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".parquet": ParquetTable,
    ".npz": NpzTable,
}
FILES = (CsvTable, ParquetTable, NpzTable)


def is_table(source: Any) -> bool:
    """Whether `source` has columns by itself: a file, a mapping, a frame or our `Predictions`; arrays have not."""
    if isinstance(source, str | Path | Mapping | Predictions | Table):
        return True
    pandas = hasattr(source, "iloc") and hasattr(source, "columns")
    streams = hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__array__")
    return pandas or streams or hasattr(source, "__dataframe__")


def files_in(*sources: Any) -> list[str | Path]:
    """The files among `sources`, or in the lists and mappings of them."""
    found: list[str | Path] = []
    for source in sources:
        if isinstance(source, str | Path):
            found.append(source)
        elif isinstance(source, list | tuple | Mapping):
            parts = source.values() if isinstance(source, Mapping) else source
            found += [one for one in parts if isinstance(one, str | Path)]
    return found


def open_table(source: Any, name: str = "table") -> Table:
    """The table behind `source`; one sentence if there is none. `name` is for those that have none of their own."""
    if isinstance(source, Table):
        return source
    if isinstance(source, str | Path):
        return _open_file(Path(source))
    if isinstance(source, Predictions):
        return _record(source, name)
    if isinstance(source, Mapping):
        return ArrayTable(source, name)
    if is_table(source):
        _need_arrow("a data frame")
        return FrameTable(source, name)
    raise InputError(
        f"{name} is {type(source).__name__}, which is no table: give a file, a data frame, a dictionary of arrays, or"
        " labels and probabilities"
    )


def _open_file(file: Path) -> Table:
    kinds = ", ".join(READERS)
    if file.is_dir():
        raise InputError(f"{file} is a folder; give a file: {kinds}")
    if not file.exists():
        raise InputError(f"{file} does not exist; check the path")
    if file.suffix.lower() not in READERS or not file.is_file():
        raise InputError(f"{file} is no table that can be read; give one that ends in {kinds}")
    if file.stat().st_size == 0:
        raise InputError(f"{file} is empty; write the predictions again")
    reader = READERS[file.suffix.lower()]
    if reader is not NpzTable:
        _need_arrow(f"reading {file}")
    return reader(file)


def _need_arrow(what: str) -> None:
    """Say what installs pyarrow, which the core does without."""
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what} needs pyarrow: {install_line('pyarrow')}", name=error.name) from None


def _record(predictions: Predictions, name: str) -> Table:
    names = {"label": "labels", "predicted": "predicted", "confidence": "confidence", "probabilities": "probabilities"}
    kept = {column: getattr(predictions, attribute) for column, attribute in names.items()} | dict(predictions.scores)
    table = ArrayTable({column: value for column, value in kept.items() if value is not None}, name)
    more = (predictions.selection, predictions.trust, predictions.ood_score, predictions.count)
    table.record = predictions if any(value is not None for value in more) else None
    return table


def wishes_of(source: Any, wishes: Wishes) -> Wishes:
    """`wishes`, and what is plain where `source` is one of our own records."""
    if not isinstance(source, Predictions):
        return wishes
    columns = {"label": "label"}
    columns |= {"probabilities": "probabilities"} if source.probabilities is not None else {"confidence": "confidence"}
    return replace(wishes, columns=columns, detectors=tuple(source.scores))


def labeled_arrays(labels: Any, probabilities: Any, logits: Any, wishes: Wishes) -> tuple[Table, Wishes, str]:
    """The table of `labels` (N,) with probabilities (N, C), P(positive) (N,) or logits, and the role of the latter."""
    if (probabilities is None) == (logits is None):
        raise InputError("give labels with probabilities, or labels with logits=")
    if wishes.columns:
        raise InputError("columns names the columns of a table; arrays have none: leave it out")
    role, values = forecast_array(probabilities, "probabilities") if logits is None else ("logits", logits)
    table = ArrayTable({"label": labels, role: values}, "predictions")
    if table.columns["label"].ndim != 1:
        raise InputError(f"labels must have one entry for each input, not shape {table.columns['label'].shape}")
    return table, replace(wishes, columns={"label": "label", role: role}), role


def forecast_array(values: Any, role: str) -> tuple[str, Any]:
    """`values` as an array, and what it is: probabilities of all classes, or a score, if it has one number per row."""
    array = as_array(role, values)
    if role == "probabilities" and (array.ndim == 1 or array.shape[1] == 1):
        return "score", array.reshape(-1)
    return role, array


def ood_tables(ood: Any, role: str | None = None) -> dict[str, Table]:
    """Tables by name of one or several OOD data; arrays are of `role`, that of the labeled data's array."""
    if ood is None:
        return {}
    if isinstance(ood, Mapping) and not _is_columns(ood, role):
        return _distinct({str(key): _ood(value, str(key), role) for key, value in ood.items()}.items())
    several = isinstance(ood, list | tuple) and len(ood) and all(is_table(one) or _is_matrix(one) for one in ood)
    tables = [_ood(one, "ood", role) for one in (ood if several else [ood])]
    stems = [table.stem for table in tables]
    long = [
        f"{Path(t.where).parent.name}/{t.stem}" if stems.count(t.stem) > 1 and "/" in t.where else t.stem
        for t in tables
    ]
    return _distinct(zip(long, tables))


def _ood(source: Any, name: str, role: str | None) -> Table:
    if isinstance(source, str | Path | Mapping | Predictions | Table) or role is None:
        return open_table(source, name)
    kind, values = ("logits", source) if role == "logits" else forecast_array(source, "probabilities")
    return ArrayTable({kind: values}, name)


def depth(values: Any) -> int:
    """How many indices lead to a single value: of arrays and frames their dimensions, of lists those inside as well.

    >>> depth([[1, 2], [3, 4]]), depth(["a", "b"])
    (2, 1)
    """
    if hasattr(values, "ndim"):
        return int(values.ndim)
    return 1 + depth(values[0]) if isinstance(values, list | tuple) and values else 0


def _is_matrix(source: Any) -> bool:
    return getattr(source, "ndim", 0) == 2


def _is_columns(ood: Mapping[Any, Any], role: str | None) -> bool:
    """Whether a mapping holds the columns of one table, rather than several tables by name."""
    if any(is_table(value) for value in ood.values()):
        return False
    return role is None or any(key in KINDS for key in ood)


def _distinct(tables: Any) -> dict[str, Table]:
    """Under names of their own; `id` is what the labeled data are called."""
    found: dict[str, Table] = {}
    for name, table in tables:
        unused, number = name if name != "id" else "id (OOD)", 2
        while unused in found:
            unused, number = f"{name} ({number})", number + 1
        found[unused] = table
    return found
