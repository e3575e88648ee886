"""Records whose checksum is right and whose content is not: found by fuzzing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import Caller, call

from calibrant.config.loading import load_settings
from calibrant.files import RunError, checksum
from calibrant.runs.stages import StoredStage
from calibrant.studies import cost_study, open_lab
from calibrant.studies.posterior_cost import read_costs
from calibrant.training.checkpoints import Checkpoint, CheckpointStore

__all__ = ["call"]


@pytest.mark.parametrize("summary", [3, "text", [[1, 2, 3]], None])
def test_a_result_that_is_no_mapping_is_refused(tmp_path: Path, summary: object) -> None:
    stage = StoredStage(tmp_path, "fit", {"a": 1})
    stage.path.mkdir()
    record = {"key": stage.key, "summary": summary, "files": {}}
    (stage.path / "result.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(RunError, match="was altered"):
        stage.result  # noqa: B018


@pytest.mark.parametrize("files", [3, "text", [], None, {}, {"model.safetensors": None}, {"model.safetensors": 3}])
def test_a_result_without_the_checksums_of_its_files_is_refused(tmp_path: Path, files: object) -> None:
    stage = StoredStage(tmp_path, "fit", {"a": 1})
    stage.finish({"loss": 0.5}, {"model.safetensors": {"w": torch.zeros(2)}}, [{"epoch": 1}])
    record = {"key": stage.key, "summary": {"loss": 0.5}, "files": files}
    (stage.path / "result.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(RunError, match="was altered"):
        stage.tensors("model.safetensors")
    with pytest.raises(RunError, match="was altered"):
        stage.rows()


@pytest.mark.parametrize("content", [{}, {"serial": "1"}, {"serial": 1, "sha256": 2, "values": {}}, {"serial": [1]}])
def test_a_checkpoint_with_other_content_counts_as_damaged(tmp_path: Path, content: dict[str, object]) -> None:
    store = CheckpointStore(tmp_path)
    store.save(Checkpoint(values={"step": 1}))
    store.save(Checkpoint(values={"step": 2}))
    newest = max(tmp_path.glob("checkpoint-*.json"), key=lambda path: json.loads(path.read_text())["serial"])
    newest.write_text(json.dumps({**content, "self": checksum(content)}))
    with pytest.warns(UserWarning, match="is damaged"):
        found = CheckpointStore(tmp_path).load()
    assert found is not None
    assert found.values == {"step": 1}


def test_plugins_that_are_no_list_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("plugins: 3\n")
    with pytest.raises(ValueError, match="plugins"):
        load_settings(path)


GOOD = {"schemes": ["FNN"], "command": "calibrant train"}
SEEDS = ["3", '"x"', "[null]", "[1e400]", "[]", "[true]", "[0.5]", "null"]
RECORDS = ["{}", "[]", "3", '{"schemes": ["FNN"]}', '{"schemes": [3], "command": ""}',
           '{"schemes": [], "command": "", "products": 3}', '{"schemes": [], "command": 3}']  # fmt: skip
ELSEWHERE = ["../../elsewhere", "..", "/etc/x", "a\\b", "a\0b", "", " "]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_system_whose_name_leads_out_of_the_run_is_refused(call: Caller, tmp_path: Path, name: str) -> None:
    """Looking for its predictor would remove what a killed process left there."""
    run, outside = tmp_path / "run", tmp_path / ".elsewhere.0123abcd.tmp"
    (run / "predictors").mkdir(parents=True)
    outside.touch()
    (run / "run.json").write_text(json.dumps({**GOOD, "products": [name]}))
    assert "run.json was altered" in call.refused("predict", run, "embedded", "--out", tmp_path / "p.csv")
    assert outside.exists()


@pytest.mark.parametrize("content", [*RECORDS, *(f'{json.dumps(GOOD)[:-1]}, "seeds": {seeds}}}' for seeds in SEEDS)])
def test_an_altered_run_record_is_refused(call: Caller, tmp_path: Path, content: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "settings.yaml").write_text("seed: 0\n")
    (run / "run.json").write_text(content)
    for command in (["report", run], ["train", "--resume", "--out", run], ["demo", "--resume", "--out", run]):
        assert "run.json was altered" in call.refused(*command)


def numbers() -> dict[str, object]:
    return {"parameters": 1, "multiply_adds": 2}


NETWORK = {"network": "n", "F": numbers(), "B": {**numbers(), "draw": 3}, "Selector": numbers()}
CHOICE = {"digest": "d", "seed": 0, "epochs": 1, "weight": 0.5, "validation": [{"weight": 0.5}]}
COSTS = {"digest": "d", "systems": {"FNN": {"training_seconds": 1.0}}}
READERS = {
    "choices/CBNN.json": (lambda lab: lab.choice("CBNN"), CHOICE),
    "records/posterior-costs.json": (read_costs, COSTS),
    "records/cost.json": (cost_study.STUDY.tables, {"paper": NETWORK, "own": NETWORK}),
}


@pytest.mark.parametrize("name", READERS)
def test_an_altered_file_of_results_is_refused(tmp_path: Path, name: str) -> None:
    lab, (read, whole) = open_lab("embedded", results=tmp_path, runs=tmp_path / "runs"), READERS[name]
    path = tmp_path / name
    path.parent.mkdir()
    path.write_text(json.dumps(whole))
    read(lab)
    broken = [{}, [], 3, *({key: value for key, value in whole.items() if key != left} for left in whole)]
    broken += [{**whole, key: value} for key in whole for value in ({"x": 1}, [1], None)]
    for content in broken:
        path.write_text(json.dumps(content))
        with pytest.raises(RunError, match=r"was altered .*delete it, and `reproduce` makes it anew"):
            read(lab)


@pytest.mark.parametrize("content", ["{}", "[]", "3"])
def test_reproduce_refuses_an_altered_choice(call: Caller, tmp_path: Path, content: str) -> None:
    path = tmp_path / "results" / "choices" / "CBNN.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    folders = ["--out", tmp_path / "results", "--runs", tmp_path / "runs"]
    assert "CBNN.json was altered" in call.refused("reproduce", "gamma-tradeoff", *folders)
