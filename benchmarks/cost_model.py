"""The cost model of prediction, measured and checked: `python -m benchmarks.cost_model`.

    seconds(N, K, W) = N (a + K c) / W      a: reading, deciding, writing; c: one member on one image; one thread each
    bytes(K)         = m + 4 P K            m: interpreter, libraries, one batch, one part; P: parameters

a and c come from two small runs with different K, m from their memory. Then two larger sizes are predicted and
measured. Every run is a process of its own, so that its peak of memory is its own; its processor time counts from when
the model is loaded, as for a worker that serves many parts. Of three rounds, each over all sizes, the best counts.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from calibrant.backbones import build
from calibrant.deploy import Backbone, Predictor
from calibrant.deploy.spread.parquet_parts import ParquetInput
from calibrant.deploy.spread.part_worker import PartWorker
from calibrant.deploy.spread.storage import Folder
from calibrant.posteriors.mean_field import MeanField
from calibrant.training import Normalize

NETWORK, SHAPE, CLASSES, BATCH = "wrn-16-1", (3, 32, 32), 100, 64
SMALL, LARGE, ROUNDS = ((256, 1), (256, 5)), ((512, 4), (1024, 10)), 3


@dataclass(frozen=True)
class Cost:
    """What one process needed: processor seconds of the work alone, and its peak of resident memory in bytes."""

    seconds: float
    memory: float
    written: float


def _predictor(members: int) -> Predictor:
    torch.manual_seed(0)
    network = Normalize(build(NETWORK, SHAPE, CLASSES), torch.full((3,), 0.5), torch.full((3,), 0.25))
    ensemble = MeanField(network).sample(members).stored()
    return Predictor(ensemble, backbone=Backbone(NETWORK, SHAPE, CLASSES))


def _write(path: Path, images: int) -> None:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(images):
        buffer = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    pq.write_table(pa.table({"image": encoded}), path)


def _run(images: int, members: int, folder: str) -> Cost:
    torch.set_num_threads(1)
    source, out = ParquetInput.open(f"{folder}/{images}.parquet"), Folder.open(f"{folder}/out-{images}-{members}")
    worker = PartWorker(source, out, BATCH, probabilities=False, early=None)
    predictor = _predictor(members)
    predictor(torch.zeros(BATCH, *SHAPE, dtype=torch.uint8))  # the first call allocates
    worker.begin(predictor)
    begun = time.process_time()
    for part in source.parts(images):
        worker.answer(part)
    seconds = time.process_time() - begun
    unit = 1 if sys.platform == "darwin" else 1024
    written = sum(path.stat().st_size for path in Path(out.path).glob("part-*"))
    return Cost(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, written)


def measure(images: int, members: int, folder: str) -> Cost:
    """The cost of one run."""
    _write(Path(folder) / f"{images}.parquet", images)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run, images, members, folder).result()


def main() -> None:
    """Print the constants, and the predictions beside the measurements."""
    parameters = sum(value.numel() for value in build(NETWORK, SHAPE, CLASSES).parameters())
    with tempfile.TemporaryDirectory() as folder:
        (n, few), (_, many) = SMALL
        found = [[measure(*size, folder) for size in (*SMALL, *LARGE)] for _ in range(ROUNDS)]
        best = [min(column, key=lambda cost: cost.seconds) for column in zip(*found)]
        small, large = best[:2], best[2:]
        c = (small[1].seconds - small[0].seconds) / n / (many - few)
        a = small[0].seconds / n - few * c
        m = small[0].memory - 4 * parameters * few
        print(f"{NETWORK}, {parameters:,} parameters, 32 x 32 x 3, batch {BATCH}, one thread")
        print(f"a = {1e3 * a:.3f} ms an image, c = {1e3 * c:.3f} ms an image and member, m = {m / 2**20:.0f} MiB")
        print(f"output: {small[0].written / n:.0f} bytes an image")
        for (images, members), cost in zip(LARGE, large):
            seconds, memory = images * (a + members * c), m + 4 * parameters * members
            print(
                f"N = {images}, K = {members}: predicted {seconds:.1f} s, measured {cost.seconds:.1f} s"
                f" ({cost.seconds / seconds - 1:+.0%}); predicted {memory / 2**20:.0f} MiB,"
                f" measured {cost.memory / 2**20:.0f} MiB ({cost.memory / memory - 1:+.0%})"
            )


if __name__ == "__main__":
    main()
