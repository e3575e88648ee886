"""Training that is killed at any moment and started again ends with the bytes of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from calibrant.config.loading import load_settings
from calibrant.files import RunError
from calibrant.training import TrainingData, Workspace, open_data

OVERRIDES = (
    "fit.epochs=10",
    "fit.batch_size=16",
    "finetune.epochs=10",
    "finetune.batch_size=16",
    "finetune.outlier_batch_size=16",
    "backbone.name=cnn-2",
    "augmentation.padding=1",
    "posterior.validation_members=2",
    "engine.checkpoint_steps=1",
)
SCHEME = "CBNN-OCM"


def workspace(out, *overrides):
    settings = load_settings("embedded", overrides=(*OVERRIDES, *overrides))
    data = open_data(settings.data, seed=0)
    some = torch.arange(100)
    parts = (data.train.subset(some), data.validation.subset(some))
    return Workspace(TrainingData(*parts, uncertainty=data.uncertainty.subset(some)), settings, out)


def final(space):
    """The bytes of the final weights and metrics of both stages."""
    space.model(SCHEME)
    return [
        (space.stage(name).path / file).read_bytes()
        for name in ("CBNN", SCHEME)
        for file in ("model.safetensors", "metrics.csv")
    ]


def position(folder):
    """Epoch and step of the newest checkpoint in `folder`, as far as it can be read while it is being written."""
    newest = (-1, 0, 0)
    for path in folder.glob("checkpoint-*.json"):
        record = json.loads(path.read_text())
        newest = max(newest, (record["serial"], record["values"]["epoch"], record["values"]["step"]))
    return newest[1:]


def kill_within(out, stage, epoch, *overrides):
    """Start the training in another process and kill it in the middle of `epoch` of `stage`."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    script = "import sys; sys.path[:0] = sys.argv[1:3]\nimport test_resume as t; t.final(t.workspace(*sys.argv[3:]))"
    command = [sys.executable, "-c", script, str(Path(__file__).parent), str(Path(__file__).parents[1]), str(out)]
    command += overrides
    with subprocess.Popen(command, env=environment) as process:
        while True:
            assert process.poll() is None, "the training ended before it could be killed"
            folders = list((out / "stages").glob(f"{stage}-*"))
            reached, step = position(folders[0]) if folders else (0, 0)
            if reached >= epoch and 0 < step < 6:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.002)
    assert process.returncode == -signal.SIGKILL


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    # Saving at other moments must change nothing.
    return final(workspace(tmp_path_factory.mktemp("whole"), "engine.checkpoint_steps=null"))


def test_killed_in_both_stages_the_weights_are_bit_identical(tmp_path, uninterrupted):
    kill_within(tmp_path, "fit-CBNN", 2)
    kill_within(tmp_path, "fine-tune-CBNN-OCM", 3)
    space = workspace(tmp_path)
    assert not space.stage(SCHEME).finished
    assert final(space) == uninterrupted
    assert not list(tmp_path.rglob("checkpoint-*"))


class CrashError(Exception):
    pass


def stop_after(monkeypatch, steps, action):
    """Let `action` happen after so many training steps."""
    from calibrant.training.loop import Loop

    update, done = Loop._update, [0]

    def counted(self, batch):
        update(self, batch)
        done[0] += 1
        if done[0] == steps:
            action()

    monkeypatch.setattr(Loop, "_update", counted)


def test_ctrl_c_saves_the_step_and_goes_on(tmp_path, monkeypatch, uninterrupted):
    with monkeypatch.context() as patched:
        stop_after(patched, 10, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            workspace(tmp_path, "engine.checkpoint_steps=null").model(SCHEME)
    folder = next((tmp_path / "stages").glob("fit-CBNN-*"))
    assert position(folder) == (1, 3)
    assert final(workspace(tmp_path)) == uninterrupted


def test_a_damaged_checkpoint_loses_nothing(tmp_path, monkeypatch, uninterrupted):
    def crash():
        raise CrashError

    with monkeypatch.context() as patched:
        stop_after(patched, 20, crash)
        with pytest.raises(CrashError):
            workspace(tmp_path).model(SCHEME)
    folder = workspace(tmp_path).stage("CBNN").path
    newest = max(folder.glob("checkpoint-*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.warns(UserWarning, match="damaged; resuming from the one before"):
        workspace(tmp_path).model("CBNN")
    assert final(workspace(tmp_path)) == uninterrupted


def test_a_full_disk_stops_with_one_sentence_and_loses_nothing(tmp_path, monkeypatch, uninterrupted):
    def fill():
        def full(_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)

    with monkeypatch.context() as patched:
        stop_after(patched, 20, fill)
        with pytest.raises(RunError, match="no space is left to write"):
            workspace(tmp_path).model(SCHEME)
    monkeypatch.undo()
    assert position(workspace(tmp_path).stage("CBNN").path) == (2, 5)
    assert final(workspace(tmp_path)) == uninterrupted


def test_another_number_of_processes_is_refused(tmp_path, monkeypatch):
    from calibrant.training import snapshots

    def crash():
        raise CrashError

    with monkeypatch.context() as patched:
        stop_after(patched, 3, crash)
        with pytest.raises(CrashError):
            workspace(tmp_path).model(SCHEME)
    load = snapshots.CheckpointStore.load

    def of_two(self):
        checkpoint = load(self)
        checkpoint.values["ranks"] = 2
        return checkpoint

    monkeypatch.setattr(snapshots.CheckpointStore, "load", of_two)
    with pytest.raises(RunError, match="begun with 2 processes and cannot go on with 1"):
        workspace(tmp_path).model(SCHEME)


def test_stages_that_are_reused_belong_to_the_same_scheme(tmp_path):
    space = workspace(tmp_path)
    assert space.stage("SCBNN-OCM").key == space.stage(SCHEME).key
    assert space.stage("CBNN").key != space.stage("BNN").key
    assert space.with_settings("calibration.weight=9").stage("BNN").key == space.stage("BNN").key
    assert space.with_settings("calibration.weight=9").stage("CBNN").key != space.stage("CBNN").key
    assert space.with_settings("finetune.gamma=2").stage(SCHEME).key != space.stage(SCHEME).key
    assert space.with_settings("finetune.gamma=2").stage("CBNN").key == space.stage("CBNN").key
    assert space.with_settings("engine.checkpoint_seconds=1").stage(SCHEME).key == space.stage(SCHEME).key
