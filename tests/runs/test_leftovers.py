"""What a kill leaves is removed or put back, and what another process holds is left alone."""

from __future__ import annotations

import json

import pytest

from calibrant.files import RunError, leftovers, whole, write_bytes
from calibrant.runs.run import Run


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
