"""What a second worker gives: predictions a second on Ray with two workers against one, one thread each.

Wall time, unlike the other benchmarks: what runs beside it counts. The rate is that between the first and the last
finished part, so that the start of the cluster and of its workers does not count. Two plain processes that do nothing
but call the predictor show what this machine allows at best.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Row
from calibrant.backbones import build
from calibrant.deploy import Backbone, Predictor
from calibrant.deploy.spread.ray_predict import RayPrediction
from calibrant.posteriors.mean_field import MeanField
from calibrant.runs.ray_cluster import cluster

NETWORK, INPUTS, MEMBERS = "mlp-1024-1024", 64, 20
PART_ROWS, PARTS, BATCH = 512, 16, 256


def _predictor() -> Predictor:
    torch.manual_seed(0)
    ensemble = MeanField(build(NETWORK, (INPUTS,), 10)).sample(MEMBERS).stored()
    return Predictor(ensemble, backbone=Backbone(NETWORK, (INPUTS,), 10))


def _write(path: Path, rows: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = np.random.default_rng(0).normal(size=rows * INPUTS).astype(np.float32)
    pq.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(values, INPUTS)}), path, row_group_size=PART_ROWS)


def _ray_rate(predictor: Predictor, source: Path, workers: int) -> float:
    """Rows a second between the first and the last finished part."""
    seen: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as out:
        RayPrediction("auto", workers=workers, part_rows=PART_ROWS).run(
            predictor,
            str(source),
            str(Path(out) / "answers"),
            batch_rows=BATCH,
            on_batch=lambda count: seen.append((time.perf_counter(), count.inputs)),
        )
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


def _plain(start: Any, queue: Any) -> None:
    torch.set_num_threads(1)
    predictor, batch = _predictor(), torch.randn(BATCH, INPUTS)
    predictor(batch)
    start.wait()
    begun, batches = time.perf_counter(), 12
    for _ in range(batches):
        predictor(batch)
    queue.put(BATCH * batches / (time.perf_counter() - begun))


def _plain_rate(processes: int) -> float:
    """Rows a second of all of them together."""
    context = multiprocessing.get_context("spawn")
    start, queue = context.Barrier(processes), context.Queue()
    running = [context.Process(target=_plain, args=(start, queue)) for _ in range(processes)]
    for process in running:
        process.start()
    found = [queue.get(timeout=300) for _ in running]
    for process in running:
        process.join()
    return float(processes * min(found))


def rows() -> Iterator[Row]:
    """The rows of this file."""
    predictor = _predictor()
    with tempfile.TemporaryDirectory() as folder, cluster(None):
        source = Path(folder) / "rows.parquet"
        _write(source, PART_ROWS * PARTS)
        pairs = [[_ray_rate(predictor, source, workers) for workers in (1, 2)] for _ in range(2)]
    one, two = (max(column) for column in zip(*pairs))
    plain = [[_plain_rate(processes) for processes in (1, 2)] for _ in range(3)]
    alone, both = (max(column) for column in zip(*plain))
    what = f"{NETWORK}, {MEMBERS} members"
    detail = f"{two:.0f} / {one:.0f} rows a second; two plain processes: {both / alone:.2f}"
    yield Row(f"prediction on Ray, two workers / one, {what}", two / one, 1.4, "higher", detail)
    detail = f"{both:.0f} / {alone:.0f} rows a second: what this machine allows"
    yield Row(f"prediction in two plain processes / one, {what}", both / alone, None, "higher", detail)
