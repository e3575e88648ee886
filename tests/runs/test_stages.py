import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from calibrant.config.dependence import key
from calibrant.files import RunError, read_tensors, whole, writable, write_bytes, write_csv, write_tensors
from calibrant.runs.run import Run


@pytest.fixture
def stage(tmp_path):
    return Run(tmp_path).stage("fit-FNN", {"rate": 0.1, "seed": 0})


def finish(stage):
    with stage.locked():
        stage.finish({"accuracy": 0.5}, {"model.safetensors": {"weight": torch.arange(6.0).reshape(2, 3)}})


def test_keys_follow_content_not_order():
    assert key({"a": {"x": 1.0, "y": [1, 2]}}) == key({"a": {"y": [1, 2], "x": 1.0}})
    assert len({key({"seed": seed}) for seed in range(100)}) == 100


def test_a_finished_stage_is_found_again(stage, tmp_path):
    assert not stage.finished
    finish(stage)
    again = Run(tmp_path).stage("fit-FNN", {"seed": 0, "rate": 0.1})
    assert again.finished
    assert again.result == {"accuracy": 0.5}
    assert torch.equal(again.tensors("model.safetensors")["weight"], torch.arange(6.0).reshape(2, 3))
    assert not Run(tmp_path).stage("fit-FNN", {"seed": 1, "rate": 0.1}).finished


@pytest.mark.parametrize("damage", [lambda b: b[:-5], lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b""])
def test_cut_or_altered_files_are_refused(stage, damage):
    finish(stage)
    path = stage.path / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RunError, match="cut short or altered"):
        stage.tensors("model.safetensors")


@pytest.mark.parametrize("content", ["{", "[]", '{"key": "x", "summary": {}, "files": {}}'])
def test_an_altered_record_is_refused(stage, content):
    finish(stage)
    (stage.path / "result.json").write_text(content)
    with pytest.raises(RunError, match="altered"):
        _ = stage.result


def test_a_file_that_is_no_safetensors_is_refused(tmp_path):
    (tmp_path / "x.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(RunError, match="not safetensors"):
        read_tensors(tmp_path / "x.safetensors")
    with pytest.raises(RunError, match="cannot be read"):
        read_tensors(tmp_path / "absent.safetensors")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch, number):
    target = tmp_path / "file"
    write_bytes(target, b"old")

    def full(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="no space is left"):
        write_bytes(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot be written"):
        write_bytes(tmp_path / "file" / "below", b"")
    with pytest.raises(RunError, match="cannot be written"), Run(tmp_path / "file").stage("a", {}).locked():
        pass


def test_shared_memory_and_views_are_written(tmp_path):
    weight = torch.arange(12.0).reshape(3, 4)
    write_tensors(tmp_path / "t.safetensors", {"a": weight, "b": weight, "c": weight.T})
    back = read_tensors(tmp_path / "t.safetensors")
    assert torch.equal(back["b"], weight)
    assert torch.equal(back["c"], weight.T)


HOLDER = """
import sys, time
from pathlib import Path
from calibrant.runs.run import Run
with Run(sys.argv[1]).stage("fit-FNN", {"rate": 0.1, "seed": 0}).locked():
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_killed_one_releases(stage, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunError, match="another process is working on"), stage.locked(wait=False):
            pass
        holder.kill()
    leftover = stage.path / ".model.safetensors.0a1b.tmp"
    leftover.write_bytes(b"half")
    with stage.locked(wait=False):
        assert not leftover.exists()


def test_csv_has_the_union_of_columns(tmp_path):
    write_csv(tmp_path / "m.csv", [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "accuracy": 1.0}])
    assert Path(tmp_path / "m.csv").read_text() == "epoch,loss,accuracy\n1,0.5,\n2,,1.0\n"


def test_looking_whether_a_folder_can_be_written_touches_no_file(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / ".probe").symlink_to(precious)
    assert writable(tmp_path) == tmp_path
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".probe", "precious"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_fails_midway_leaves_the_old_one_whole(tmp_path, kind):
    target = tmp_path / "target"

    def make(path, content):
        if kind == "folder":
            path.mkdir(exist_ok=True)
            path = path / "inner"
        path.write_text(content)

    make(target, "old")

    def fail():
        with whole(target, folder=kind == "folder") as temporary:
            make(temporary, "half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    read = target if kind == "file" else target / "inner"
    assert read.read_text() == "old"
    with whole(target, folder=kind == "folder") as temporary:
        make(temporary, "new")
    assert read.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path):
    (tmp_path / "p.csv").mkdir()
    (tmp_path / "p.csv" / "mine").write_text("precious")
    with pytest.raises(RunError, match="cannot be written"):
        write_bytes(tmp_path / "p.csv", b"new")
    assert (tmp_path / "p.csv" / "mine").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def test_a_folder_behind_a_link_is_replaced_where_it_is(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole(tmp_path / "link", folder=True) as temporary:
        (temporary / "inner").write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "inner").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]
