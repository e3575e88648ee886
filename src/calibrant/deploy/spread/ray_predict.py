"""Prediction on Ray Data: workers that load the predictor once, read parts of the input and write parts of the output.

A part goes from file to file inside one worker, batch by batch, so nothing piles up between reading, deciding and
writing, and memory is bounded by a batch and the columns of one part. The name of an output file follows from the rows
it answers for, and it appears whole or not at all; so a part that is done twice, because a worker died, is there once.

    OUT/part-000000.parquet ...   the rows of the input in its order, within files and over the names of files
    OUT/_plan.json                what was asked for; what is there is reused only for the same
    OUT/_attempts/                a note by every worker that began a part, until all are done
    OUT/_result.json              counts; written last
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calibrant import InputError
from calibrant.data import DataError
from calibrant.deploy import EarlyStopping, Predictor
from calibrant.deploy.prediction_tables import PredictionCount, image_options
from calibrant.deploy.spread.parquet_parts import FilePart, ParquetInput
from calibrant.deploy.spread.part_worker import Answers, PartWorker, answers_identity, totals_of
from calibrant.deploy.spread.storage import Folder
from calibrant.files import RunError
from calibrant.runs.ray_cluster import cluster
from calibrant.runs.resources import Resources

PART_ROWS = 65_536


@dataclass(frozen=True)
class SpreadCount(PredictionCount):
    """The count of a prediction, over how many parts, and how many attempts at a part were lost and made again."""

    parts: int = 0
    retries: int = 0


@dataclass(frozen=True)
class RayPrediction:
    """How a prediction is spread over the Ray cluster at `address`; None starts one on this machine.

    Args:
        address: the only difference between one node and many.
        workers: how many; None takes as many as the cluster has room for.
        resources: of one worker.
        retries: how often a part whose worker died is tried again; then the prediction fails, and can be resumed.
        part_rows: rows of one output file, rounded up to whole batches.
    """

    address: str | None = None
    workers: int | None = None
    resources: Resources = field(default_factory=Resources)
    retries: int = 3
    part_rows: int = PART_ROWS

    def run(
        self,
        predictor: Predictor,
        spec: str,
        out: str,
        *,
        batch_rows: int = 256,
        probabilities: bool = False,
        early: EarlyStopping | None = None,
        on_batch: Callable[[PredictionCount], None] | None = None,
    ) -> SpreadCount:
        """Decide on all rows that `spec` names and write them to the folder `out`; parts that are there are kept."""
        source, folder = ParquetInput.open(spec), Folder.open(out)
        source = replace(source, options={**image_options(predictor), **source.options})
        part_rows = -(-self.part_rows // batch_rows) * batch_rows
        parts = source.parts(part_rows)
        worker = PartWorker(source, folder, batch_rows, probabilities, early, self.resources, self.retries)
        _begin(
            folder,
            {"input": spec, "rows": list(source.rows), "part_rows": part_rows, **answers_identity(predictor, worker)},
        )
        present = folder.names()
        missing = [part for part in parts if part.name not in present]
        done = _Progress(sum(part.rows for part in parts if part.name in present), on_batch)
        if missing:
            with cluster(self.address) as ray:
                for answer in self._answers(ray, predictor, worker, missing):
                    done.add(answer)
        return _finish(folder, parts)

    def _answers(self, ray: Any, predictor: Predictor, worker: PartWorker, parts: list[FilePart]) -> Iterator[Answers]:
        """What the workers say of each part, as they finish."""
        from ray.data import ActorPoolStrategy, DataContext, from_items

        context = DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        model = ray.put(predictor)  # kept until the last worker has read it, also one that is started late
        workers = min(len(parts), self.workers or _room(ray, self.resources))
        data = from_items([asdict(part) for part in parts], override_num_blocks=len(parts))
        spread = data.map_batches(
            _Actor,
            fn_constructor_args=([model], worker),
            batch_size=1,
            batch_format="pyarrow",
            compute=ActorPoolStrategy(size=workers),
            **self.resources.for_ray(),
        )
        try:
            for row in spread.iter_rows():
                if row["error"]:
                    raise (DataError if row["usage_error"] else RunError)(row["error"])
                yield Answers(row["rows"], row["accepted"], row["members"])
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise RunError(f"prediction failed on a worker ({reason}); start again to resume") from None


class _Actor:
    """A worker process: the predictor, loaded once, and what to do with a part."""

    def __init__(self, model: list[Any], worker: PartWorker) -> None:
        import ray

        self.worker = worker
        self.worker.begin(ray.get(model[0]))

    def __call__(self, table: Any) -> Any:
        import pyarrow as pa

        found = [self._one(FilePart(**row)) for row in table.to_pylist()]
        return pa.Table.from_pylist(found)

    def _one(self, part: FilePart) -> dict[str, Any]:
        try:
            return {**asdict(self.worker.answer(part)), "error": "", "usage_error": False}
        except (InputError, RunError) as error:  # would fail again: one sentence for the user
            wrong = isinstance(error, InputError)
            return {**asdict(Answers()), "error": " ".join(str(error).split()), "usage_error": wrong}


def _room(ray: Any, resources: Resources) -> int:
    """How many workers the cluster has room for."""
    wanted = {"CPU": resources.cpu, "GPU": resources.gpu, **resources.custom}
    free = ray.cluster_resources()
    room = min((int(free.get(name, 0) // amount) for name, amount in wanted.items() if amount), default=1)
    if room < 1:
        raise InputError(f"resources {wanted} of a worker are more than the cluster has")
    return room


class _Progress:
    """The running count."""

    def __init__(self, before: int, on_batch: Callable[[PredictionCount], None] | None) -> None:
        self.inputs, self.accepted, self.members, self.on_batch = before, 0, 0, on_batch

    def add(self, answer: Answers) -> None:
        self.inputs, self.accepted = self.inputs + answer.rows, self.accepted + answer.accepted
        self.members += answer.members
        if self.on_batch is not None:
            self.on_batch(PredictionCount(self.inputs, self.accepted, self.members / max(1, self.inputs)))


def _begin(folder: Folder, plan: dict[str, Any]) -> None:
    """Note what is asked for; refuse a folder that holds something else."""
    text = json.dumps(plan, indent=1, sort_keys=True)
    before = folder.read("_plan.json")
    if before is not None and before.decode() != text:
        raise InputError(f"{folder} holds another prediction; choose another --out, or delete it")
    if before is None:
        stray = [name for name in folder.names() if not name.startswith((".", "_"))]
        if stray:
            raise InputError(f"{folder} is not empty (it has {stray[0]}); choose another --out")
        folder.write("_plan.json", text.encode())


def _finish(folder: Folder, parts: list[FilePart]) -> SpreadCount:
    """Count what is there, over all attempts, and note it in `_result.json`."""
    before = folder.read("_result.json")
    if before is not None:
        return SpreadCount(**json.loads(before))
    attempts = len(folder.names("_attempts", recursive=True))
    totals = [totals_of(folder, part) for part in parts]
    inputs = sum(one.rows for one in totals)
    wanted = sum(part.rows for part in parts)
    if inputs != wanted:
        raise RunError(f"{folder} has {inputs} rows instead of {wanted}: it was altered; delete it and start again")
    members = sum(one.members for one in totals) / inputs
    count = SpreadCount(inputs, sum(one.accepted for one in totals), members, len(parts), attempts - len(parts))
    folder.write("_result.json", json.dumps(asdict(count), indent=1).encode())
    folder.remove("_attempts")
    return count
