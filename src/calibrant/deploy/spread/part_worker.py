"""What a worker does with a part of the input: read, decide, write; the same whoever does it and however often."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any

import torch

from calibrant.deploy import EarlyStopping, Predictor
from calibrant.deploy.spread.parquet_parts import FilePart, ParquetInput
from calibrant.deploy.spread.storage import Folder
from calibrant.files import RunError
from calibrant.runs.resources import Resources

_TOTALS = b"calibrant.totals"
FORMAT = 2  # of the parts: raise it when their columns change


@dataclass(frozen=True)
class Answers:
    """Totals of a part: inputs, accepted answers, members asked."""

    rows: int = 0
    accepted: int = 0
    members: int = 0


@dataclass
class PartWorker:
    """Reads parts of `source` and writes the answers to `folder`, with `resources`."""

    source: ParquetInput
    folder: Folder
    batch_rows: int
    probabilities: bool
    early: EarlyStopping | None
    resources: Resources = field(default_factory=Resources)
    retries: int = 3
    predictor: Predictor | None = None
    session: str = field(default_factory=lambda: secrets.token_hex(4))

    def begin(self, predictor: Predictor) -> None:
        """Take the predictor, onto an accelerator if this process was given one."""
        from calibrant.adapters.devices import choose_device

        torch.set_num_threads(self.resources.cpu)
        self.predictor = predictor.to(choose_device("auto" if self.resources.gpu else "cpu")).eval()

    def answer(self, part: FilePart) -> Answers:
        """Decide on `part` and write its file."""
        self._note_attempt(part)
        tables, accepted, members = [], 0, 0
        for ids, inputs in self.source.read(part, self.batch_rows):
            decision, table = self._decide(ids, inputs, part.file)
            accepted, members = accepted + int(decision.accepted.sum()), members + int(decision.members.sum())
            tables.append(table)
        totals = Answers(part.rows, accepted, members)
        self.folder.write(part.name, _parquet(tables, totals))
        return totals

    def _note_attempt(self, part: FilePart) -> None:
        """Leave word that this process begins `part`, unless too many have begun it and died."""
        place = f"_attempts/{part.number:06d}"
        lost = sum(name.startswith(self.session) for name in self.folder.names(place))
        if lost > self.retries:
            raise RunError(
                f"{lost} workers died at rows {part.start} to {part.start + part.rows} of {part.file}, of lack of"
                " memory perhaps; start again to resume, with smaller batches or fewer workers a node"
            )
        note = {"part": part.number, "pid": os.getpid(), "host": socket.gethostname()}
        self.folder.write(f"{place}/{self.session}-{secrets.token_hex(4)}.json", json.dumps(note).encode())

    def _decide(self, ids: list[str], inputs: Any, name: str) -> tuple[Any, Any]:
        import pyarrow as pa

        from calibrant.deploy.prediction_tables import check_shape

        assert self.predictor is not None
        check_shape(self.predictor, name, tuple(inputs.shape[1:]))
        decision = self.predictor(inputs, early=self.early).to("cpu")
        return decision, pa.table({"id": ids, **decision.table(probabilities=self.probabilities)})


def _parquet(tables: list[Any], totals: Answers) -> bytes:
    """The bytes of one Parquet file, its totals in the footer."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = pa.concat_tables(tables)
    whole = whole.replace_schema_metadata({_TOTALS: json.dumps(vars(totals)).encode()})
    buffer = pa.BufferOutputStream()
    pq.write_table(whole, buffer)
    content: bytes = buffer.getvalue().to_pybytes()
    return content


def totals_of(folder: Folder, part: FilePart) -> Answers:
    """The totals of a part that was written, from its footer."""
    import pyarrow.parquet as pq

    schema = pq.read_schema(f"{folder.path}/{part.name}", filesystem=folder.filesystem)
    return Answers(**json.loads(schema.metadata[_TOTALS]))


def answers_identity(predictor: Predictor, worker: PartWorker) -> dict[str, Any]:
    """What determines the answers to an input: equal for equal weights, thresholds and options."""
    digest = hashlib.sha256(repr((predictor.threshold, predictor.classes, predictor.rule.ood_score)).encode())
    for name, value in sorted(predictor.state_dict().items()):
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    transform = {} if predictor.transform is None else {"transform": repr(predictor.transform)}
    return {
        **transform,
        "format": FORMAT,
        "predictor": digest.hexdigest(),
        "batch_rows": worker.batch_rows,
        "probabilities": worker.probabilities,
        "early": None if worker.early is None else vars(worker.early),
    }
