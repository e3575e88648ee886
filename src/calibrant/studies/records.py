"""Records of trials as Parquet files: one row per measure with its bootstrap draws, all else as JSON in the metadata.

    coverage    the wanted coverage that the measure was taken at; null for the scores
    score       the OOD score that the measure is of; null for the system itself
    measure     such as "ece" or "detection:lsun-resize"
    value       a fraction; null where undefined
    draws       the values under the resamples of the inputs, in units of 1e-5; null where undefined

The same record gives the same bytes. The JSON is under the key `record`, its keys sorted, so that their order does not
matter; `sizes` is a list of pairs, because there the order does: the first OOD set is of the kind of D_u. Version 0.1.0
wrote records as JSON files, which are still read.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrant.files import RunError, read_bytes, read_json, write_bytes

_KEY = b"record"


def find_record(path: Path) -> Path | None:
    """`path`, or the JSON file of version 0.1.0 beside it; None if there is neither."""
    return next((file for file in (path, _old(path)) if file.exists()), None)


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write `record` to `path`, whole or not at all, in place of a JSON file of version 0.1.0."""
    write_bytes(path, _encode(record))
    _old(path).unlink(missing_ok=True)


def read_record(path: Path) -> dict[str, Any]:
    """The record in `path`."""
    if path.suffix == ".json":
        return dict(read_json(path))
    with _opened(path) as file:
        record = _header(file)
        measures = {at["wanted"]: at.setdefault("measures", {}) for at in record["at"]}
        for row in file.read(use_threads=False).to_pylist():
            entry = {"value": row["value"], "draws": row["draws"]}
            if row["score"] is None:
                measures[row["coverage"]][row["measure"]] = entry
            else:
                record.setdefault("detectors", {}).setdefault(row["score"], {})[row["measure"]] = entry
        return record


def read_header(path: Path) -> dict[str, Any]:
    """The record in `path` without its measures."""
    if path.suffix == ".json":
        return read_record(path)
    with _opened(path) as file:
        return _header(file)


def _old(path: Path) -> Path:
    return path.with_name(f"{path.stem}.json")


def _encode(record: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    header = {key: value for key, value in record.items() if key != "detectors"}
    header["sizes"] = list(record["sizes"].items())
    header["at"] = [{key: value for key, value in at.items() if key != "measures"} for at in record["at"]]
    columns = {
        "coverage": pa.float64(),
        "score": pa.string(),
        "measure": pa.string(),
        "value": pa.float64(),
        "draws": pa.list_(pa.int32()),
    }
    table = pa.Table.from_pylist(list(_rows(record)), pa.schema(columns))
    options = {
        "compression": "zstd",
        "compression_level": 19,
        "use_dictionary": ["coverage", "score", "measure"],  # draws hardly repeat
        "store_schema": False,
        "write_page_checksum": True,
    }
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_KEY: json.dumps(header, sort_keys=True, separators=(",", ":"))})
    return file.getvalue()


def _rows(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for at in record["at"]:
        for measure, entry in at["measures"].items():
            yield {"coverage": at["wanted"], "measure": measure, **entry}
    for score, measures in record.get("detectors", {}).items():
        for measure, entry in measures.items():
            yield {"score": score, "measure": measure, **entry}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The Parquet file `path`; whatever is found wrong with it inside the block becomes one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferReader(read_bytes(path))
    try:
        yield pq.ParquetFile(content, page_checksum_verification=True)
    except (pa.ArrowException, AttributeError, LookupError, OSError, TypeError, ValueError):
        raise RunError(
            f"{path} was cut short or altered (it is not a record); delete it, and `reproduce` measures it again"
        ) from None


def _header(file: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(file.metadata.metadata[_KEY])
    header["sizes"] = dict(header["sizes"])
    return header
