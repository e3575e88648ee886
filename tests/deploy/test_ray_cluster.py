"""A real Ray cluster, two nodes of one worker each on this machine; workers are killed in the middle of their work."""

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sweeps import RAY, address, predictor, settings, six_trials, write_rows

from calibrant.config.schemes import Scheme
from calibrant.deploy.prediction_tables import predict_table
from calibrant.deploy.spread.ray_predict import RayPrediction
from calibrant.runs import ray_cluster
from calibrant.runs.executor import Serial
from calibrant.runs.ray_cluster import cluster as connected
from calibrant.runs.ray_tune import RayTune
from calibrant.training.sweeps.grid import Parameter, Sweep
from calibrant.training.sweeps.sweep import run_sweep

__all__ = ["address"]
pytestmark = RAY


class Killer(threading.Thread):
    """Waits until `find()` names a process, and kills it as `kill -9` does."""

    def __init__(self, find):
        super().__init__(daemon=True)
        self.find, self.pid = find, None

    def run(self):
        while self.pid is None:
            time.sleep(0.01)
            self.pid = self.find()
        os.kill(self.pid, signal.SIGKILL)

    def gone(self):
        """Whether the process is no more; one that nobody has waited for yet is dead, too."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True


def notes(folder):
    """What the processes wrote when they began; files are written whole."""
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("[!.]*.json"))]


def trial_in_the_middle(out):
    """The process of a trial that has not ended while a fit has a checkpoint and no result."""
    for stage in (out / "stages").glob("fit-CBNN-*"):
        if any(stage.glob("checkpoint-*.json")) and not (stage / "result.json").exists():
            rows = json.loads((out / "sweep.json").read_text())["trials"]
            pending = {row["name"] for row in rows if row["state"] == "pending"}
            return next((note["pid"] for note in notes(out / "attempts") if note["trial"] in pending), None)
    return None


def test_a_sweep_with_a_killed_worker_equals_the_local_one(address, tmp_path):
    sweep = six_trials("fit.epochs=40")
    local = run_sweep(sweep, tmp_path / "local", Serial(threads=1))
    out = tmp_path / "ray"
    out.mkdir()
    killer = Killer(lambda: trial_in_the_middle(out) if (out / "stages").exists() else None)
    killer.start()
    found = run_sweep(sweep, out, RayTune(address, retries=3))
    killer.join(60)
    assert killer.gone()
    assert sum(row.attempts - 1 for row in found.rows()) > 0
    assert [replace(row, attempts=1) for row in found.rows()] == list(local.rows())
    assert found.winner.name == local.winner.name
    assert len({row.key for row in found.rows()}) == 7
    pids = {note["pid"] for note in notes(out / "attempts")}
    assert len(pids) >= 2
    assert os.getpid() not in pids


def part_in_the_middle(out):
    """The process of a part that was begun and is not written."""
    for note in notes(out / "_attempts"):
        if not (out / f"part-{note['part']:06d}.parquet").exists():
            return note["pid"]
    return None


def test_a_prediction_with_a_killed_worker_has_every_row_once(address, tmp_path):
    source, made = write_rows(tmp_path / "in.parquet", 2000), predictor("mlp-1024-1024", members=20)
    spec = f"{source}?id=key"
    count = predict_table(made, spec, tmp_path / "local.parquet", batch_rows=50)
    out = tmp_path / "ray"
    killer = Killer(lambda: part_in_the_middle(out) if out.exists() else None)
    killer.start()
    told = []
    engine = RayPrediction(address, workers=2, part_rows=250)
    found = engine.run(made, spec, str(out), batch_rows=50, on_batch=told.append)
    killer.join(60)
    assert killer.gone()
    assert found.retries > 0
    assert (found.inputs, found.accepted, found.members, found.parts) == (2000, count.accepted, 20.0, 8)
    answers = pq.read_table(out).replace_schema_metadata(None)
    assert answers.equals(pq.read_table(tmp_path / "local.parquet"))  # the same rows, in the same order, the same bits
    assert len(set(answers["id"].to_pylist())) == 2000
    assert told[-1].inputs == 2000
    assert not (out / "_attempts").exists()
    assert engine.run(made, spec, str(out), batch_rows=50) == found  # nothing is left to do
    with pytest.raises(ValueError, match="holds another prediction"):
        engine.run(predictor("mlp-8"), spec, str(out), batch_rows=50)


def test_a_wrong_input_is_one_sentence_from_the_worker(address, tmp_path):
    source = write_rows(tmp_path / "in.parquet", 20)
    with pytest.raises(ValueError, match="has inputs of shape"):
        RayPrediction(address).run(predictor(), f"{source}?features=label", str(tmp_path / "out"))


def test_trials_that_fall_behind_are_stopped(address, tmp_path):
    sweep = Sweep(settings("fit.epochs=24"), Scheme.parse("FNN"), (Parameter.parse("rate=0.3,1e-6"),))
    found = run_sweep(sweep, tmp_path, RayTune(address, asha=True))
    assert [row.state for row in found.rows()] == ["finished", "finished", "stopped"]
    assert "early, after epoch" in found.trials[1].reason
    assert found.winner != found.trials[1]
    assert run_sweep(sweep, tmp_path, RayTune(address, asha=True)) == found  # and stay stopped


def test_another_version_of_ray(address, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "__version__", "1.2.3")
    with pytest.raises(ValueError, match="runs another version of Ray or Python"), connected(address):
        pass


def test_a_node_with_another_torch(address, monkeypatch):
    here = {**ray_cluster.versions(), "torch": "0.4.1"}
    monkeypatch.setattr(ray_cluster, "versions", lambda: here)
    with (
        pytest.raises(ValueError, match=r"has torch .*, this process 0\.4\.1: results would differ"),
        connected(address),
    ):
        pass
