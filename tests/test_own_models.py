"""The Python examples of docs/other-peoples-models.md, run one after the other as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformer_models import bert, rows_of, texts

import calibrant

PAGE = Path(__file__).parent.parent / "docs" / "other-peoples-models.md"


def problem() -> dict[str, Any]:
    """The names that the examples take for granted."""
    data, outliers = texts(60), texts(40, seed=1)
    loader = DataLoader(rows_of(data), batch_size=20)  # type: ignore[arg-type]
    options = {"max_steps": 2, "report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    return {
        "torch": torch,
        "calibrant": calibrant,
        "model": bert(),
        "base_model": bert(),
        "fresh_base_model": bert(),
        "train_loader": loader,
        "validation_loader": loader,
        "outlier_loader": DataLoader(rows_of(outliers), batch_size=10),  # type: ignore[arg-type]
        "batch": texts(8),
        **texts(250),
        "num_data": 60,
        "rows": torch.randn(9, 6),
        "trainer_options": {
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "accelerator": "cpu",
        },
        "training_options": {**options, "dataloader_pin_memory": False},
    }


@pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not in the source distribution")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*", "ignore:.*does not have many workers.*")
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore:.*smaller than the logging interval.*")
def test_the_examples_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = problem()
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    assert len(blocks) >= 8
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert names["decision"].trust.shape == (8,)
    assert names["answered"].shape == (250,)
    assert names["probabilities"].shape == (60, 3)
    expected = names["posterior"].sample(2)(names["batch"])
    torch.testing.assert_close(names["loaded"].sample(2)(names["batch"]), expected)
