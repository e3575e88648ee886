"""The examples of docs/posterior.md for single families, run as written on a small problem."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PAGE = (Path(__file__).parents[2] / "docs" / "posterior.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


class Network(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))


@pytest.mark.parametrize("family", ["IVON", "DeepEnsemble", "MCDropout", "SWAG", "Laplace"])
def test_the_example_of_a_family_runs_as_written(family: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = (x[:, 0] > 0).long()
    data = TensorDataset(x, y)
    loader = DataLoader(data, batch_size=64)
    names = {
        "network": Network(),
        "Network": Network,
        "x": x,
        "inputs": x,
        "y": y,
        "F": F,
        "torch": torch,
        "data": data,
    }
    names |= {"loader": loader, "train_loader": loader, "epochs": 2}
    (code,) = (block for block in BLOCKS if re.search(rf"^posterior = {family}\(", block, flags=re.M))
    exec(compile(code, "posterior.md", "exec"), names)
    if family == "DeepEnsemble":
        assert names["logits"].shape == (5, 256, 2)
        assert torch.isfinite(names["loss"])
        return
    with torch.no_grad():
        logits = names["ensemble"](x)
    assert logits.shape == (20, 256, 2)
    assert torch.isfinite(logits).all()
