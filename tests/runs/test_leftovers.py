"""What a kill leaves is removed or put back, and what another process holds is left alone."""

from __future__ import annotations

import json

import pytest
import torch
from commands import TINY

from calibrant.config.loading import load_settings
from calibrant.files import RunError, leftovers, whole, write_bytes
from calibrant.runs.run import Run
from calibrant.training import Workspace, open_data
from calibrant.training.checkpoints import Checkpoint, CheckpointStore


def test_a_leftover_is_removed_when_its_target_is_written_again(tmp_path):
    for name in (".p.csv.0123abcd.tmp", ".q.csv.0123abcd.tmp", ".p.csv.mine.tmp"):
        (tmp_path / name).write_text("half")
    write_bytes(tmp_path / "p.csv", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".p.csv.mine.tmp", ".q.csv.0123abcd.tmp", "p.csv"]


def test_what_another_writer_holds_is_left_alone(tmp_path):
    with whole(tmp_path / "p.csv") as temporary:
        write_bytes(tmp_path / "p.csv", b"second")
        assert temporary.exists()
        temporary.write_bytes(b"first")
    assert (tmp_path / "p.csv").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_a_folder_of_which_only_the_old_one_is_left_is_put_back(tmp_path):
    (tmp_path / ".FNN.0123abcd.old").mkdir()
    (tmp_path / ".FNN.0123abcd.old" / "inner").write_text("old")
    (tmp_path / ".FNN.0123abcd.tmp").mkdir()
    leftovers.clear(tmp_path / "FNN")
    assert [path.name for path in tmp_path.iterdir()] == ["FNN"]
    assert (tmp_path / "FNN" / "inner").read_text() == "old"


def test_an_edited_number_in_a_result_is_refused_and_an_old_result_is_read(tmp_path):
    stage = Run(tmp_path).stage("fit-FNN", {"rate": 0.1})
    with stage.locked():
        stage.finish({"accuracy": 0.5})
    record = json.loads((stage.path / "result.json").read_text())
    (stage.path / "result.json").write_text(json.dumps({**record, "summary": {"accuracy": 0.9}}))
    with pytest.raises(RunError, match="was altered"):
        _ = stage.result
    del record["checksum"]
    (stage.path / "result.json").write_text(json.dumps(record))
    assert stage.result == {"accuracy": 0.5}


def test_checkpoints_of_a_finished_stage_are_removed(tmp_path):
    """As a kill leaves them between the result of a stage and the end of its checkpoints."""
    settings = load_settings("embedded", overrides=[*TINY, "fit.epochs=1", "data.train=96"])
    workspace = Workspace(open_data(settings.data, 0), settings, tmp_path, progress=False)
    workspace.history("FNN")
    stage = workspace.stage("FNN").path
    CheckpointStore(stage).save(Checkpoint({"x": torch.zeros(2)}, {"step": 1}))
    assert list(stage.glob("checkpoint-*"))
    workspace.history("FNN")
    assert not list(stage.glob("checkpoint-*"))


@pytest.mark.parametrize("name", ["settings.yaml", "splits.json"])
def test_what_a_kill_left_of_the_files_of_a_run_is_removed(tmp_path, name):
    (tmp_path / f".{name}.0123abcd.tmp").write_text("half")
    Run(tmp_path).describe(load_settings("embedded"), "{}")
    assert not list(tmp_path.glob(".*.tmp"))
