"""A million rows of the size of the embedded images, on Ray: no process grows beyond 2 GiB."""

import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sweeps import RAY, predictor

from calibrant.deploy.spread.ray_predict import RayPrediction

ROWS, LIMIT = 1_000_000, 2 * 2**30

pytestmark = [
    *RAY,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads /proc"),
]


def _fields(path):
    try:
        return dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}  # it has ended meanwhile


class Peaks(threading.Thread):
    """The largest resident set, in bytes, of this process and of everything that it started, by process id."""

    def __init__(self):
        super().__init__(daemon=True)
        self.found, self.names, self.over = {}, {}, threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            self.look()

    def look(self):
        status = {int(path.parent.name): _fields(path) for path in Path("/proc").glob("[0-9]*/status")}
        status = {pid: one for pid, one in status.items() if "PPid" in one}
        family = {os.getpid()}
        while more := {pid for pid, one in status.items() if int(one["PPid"]) in family} - family:
            family |= more
        for pid in family & set(status):
            if "VmHWM" in status[pid]:
                self.found[pid] = int(status[pid]["VmHWM"].split()[0]) * 1024
                self.names[pid] = status[pid]["Name"].strip()


def test_a_million_rows_stay_within_2_gib_in_each_process(tmp_path):
    with pq.ParquetWriter(tmp_path / "in.parquet", pa.schema([("x", pa.list_(pa.float32(), 64))])) as writer:
        for seed in range(20):
            values = np.random.default_rng(seed).integers(0, 17, ROWS // 20 * 64).astype(np.float32)
            writer.write_table(pa.table({"x": pa.FixedSizeListArray.from_arrays(values, 64)}))
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of what ran in this process before
    peaks = Peaks()
    peaks.start()
    count = RayPrediction(workers=2).run(predictor("mlp-24", 3), str(tmp_path / "in.parquet"), str(tmp_path / "out"))
    peaks.over.set()
    peaks.join()
    assert count.inputs == ROWS
    ids = pq.read_table(tmp_path / "out", columns=["id"])["id"].to_numpy()
    assert np.array_equal(ids.astype(np.int64), np.arange(ROWS))
    assert len(peaks.found) > 3
    largest = max(peaks.found, key=peaks.found.get)
    print({f"{peaks.names[pid]} {pid}": f"{size / 2**20:.0f} MiB" for pid, size in peaks.found.items()})
    assert peaks.found[largest] < LIMIT, peaks.names[largest]
