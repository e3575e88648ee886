"""The Python examples of the README, run as written on a small problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from calibrant import checks

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def problem() -> dict[str, object]:
    """The names that the examples take for granted."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 6, generator=generator)
    labels = (inputs[:, 0] + 0.3 * torch.randn(400, generator=generator) > 0).long()
    outliers = 8 * torch.randn(200, 6, generator=generator)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=64)
    return {
        "network": nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)),
        "train_loader": loader,
        "validation_loader": loader,
        "test_loader": loader,
        "outlier_loader": DataLoader(TensorDataset(outliers), batch_size=64),
        "validation_inputs": inputs[:200],
        "validation_labels": labels[:200],
        "inputs": inputs,
        "labels": labels,
        "test_inputs": inputs,
        "outlier_inputs": outliers,
    }


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("code", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_the_example_runs_as_written(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = problem()
    exec(compile(code, "README.md", "exec"), names)
    if "probabilities" in names:
        checks.probabilities("probabilities", names["probabilities"])
    if "accepted" in names:
        assert 0.7 < float(names["accepted"].float().mean()) <= 1.0  # type: ignore[attr-defined]
