"""Records whose checksum is right and whose content is not: found by fuzzing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calibrant.config.loading import load_settings
from calibrant.files import RunError, checksum
from calibrant.runs.stages import StoredStage
from calibrant.training.checkpoints import Checkpoint, CheckpointStore


@pytest.mark.parametrize("summary", [3, "text", [[1, 2, 3]], None])
def test_a_result_that_is_no_mapping_is_refused(tmp_path: Path, summary: object) -> None:
    stage = StoredStage(tmp_path, "fit", {"a": 1})
    stage.path.mkdir()
    record = {"key": stage.key, "summary": summary, "files": {}}
    (stage.path / "result.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(RunError, match="was altered"):
        stage.result  # noqa: B018


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
