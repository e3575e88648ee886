"""One of two nodes of a Ray cluster is lost, with all its processes, in the middle of a prediction or a sweep."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sweeps import RAY, predictor, six_trials, two_nodes, write_rows

from calibrant.deploy.prediction_tables import predict_table
from calibrant.deploy.spread.ray_predict import RayPrediction
from calibrant.runs.executor import Serial
from calibrant.runs.ray_tune import RayTune
from calibrant.training.sweeps.sweep import run_sweep

pytestmark = [*RAY, pytest.mark.slow]


class Loser(threading.Thread):
    """Takes `node` from `cluster` as soon as a worker of it has noted in `folder` that it began."""

    def __init__(self, cluster, node, folder):
        super().__init__(daemon=True)
        self.cluster, self.node, self.folder, self.lost = cluster, node, folder, False

    def run(self):
        (raylet,) = self.node.all_processes["raylet"]
        while not any(_parent(pid) == raylet.process.pid for pid in self._pids()):
            time.sleep(0.05)
        self.cluster.remove_node(self.node, allow_graceful=False)
        self.lost = True

    def _pids(self):
        return [json.loads(path.read_text())["pid"] for path in self.folder.rglob("[!.]*.json")]


def _parent(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return None


def test_a_prediction_that_loses_a_node_has_every_row_once(tmp_path):
    source, made = write_rows(tmp_path / "in.parquet", 2000), predictor("mlp-1024-1024", members=20)
    count = predict_table(made, f"{source}?id=key", tmp_path / "local.parquet", batch_rows=50)
    out = tmp_path / "ray"
    with two_nodes() as (cluster, second):
        loser = Loser(cluster, second, out / "_attempts")
        loser.start()
        found = RayPrediction(cluster.address, workers=2, part_rows=250).run(
            made, f"{source}?id=key", str(out), batch_rows=50
        )
        assert loser.lost
    assert (found.inputs, found.accepted, found.parts) == (2000, count.accepted, 8)
    assert pq.read_table(out).replace_schema_metadata(None).equals(pq.read_table(tmp_path / "local.parquet"))


def test_a_sweep_that_loses_a_node_equals_the_local_one(tmp_path):
    sweep = six_trials("fit.epochs=20")
    local = run_sweep(sweep, tmp_path / "local", Serial(threads=1))
    out = tmp_path / "ray"
    with two_nodes() as (cluster, second):
        loser = Loser(cluster, second, out / "attempts")
        loser.start()
        found = run_sweep(sweep, out, RayTune(cluster.address, retries=3))
        assert loser.lost
    assert [replace(row, attempts=1) for row in found.rows()] == list(local.rows())
