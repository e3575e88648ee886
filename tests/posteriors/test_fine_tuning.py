"""The recipe of docs/posterior.md for a network that was trained already, run as it is written there."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

PAGE = Path(__file__).parents[2] / "docs" / "posterior.md"


def recipe() -> str:
    section = PAGE.read_text().partition("### Fine-tuning a trained network")[2]
    found = re.search(r"```python\n(.*?)```", section, re.S)
    assert found is not None
    return found[1]


def images(count: int) -> tuple[Tensor, Tensor]:
    """Noisy images whose brightness is in one of four quarters."""
    labels = torch.randint(4, (count,))
    x = 0.5 * torch.randn(count, 1, 8, 8)
    for k in range(4):
        rows, columns = 4 * (k // 2), 4 * (k % 2)
        x[labels == k, :, rows : rows + 4, columns : columns + 4] += 1
    return x, labels


def accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((network.eval()(x).argmax(1) == y).float().mean())


def test_the_recipe_keeps_the_accuracy_and_lowers_the_confidence_on_outliers() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    inputs, labels = images(3000)
    test, test_labels = images(500)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for rows in torch.randperm(len(inputs)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    outliers = 3 * torch.randn(500, 1, 8, 8)
    before, statistics = accuracy(network, test, test_labels), network[1].running_mean.clone()
    confident = network(outliers).softmax(1).amax(1).mean()
    names = {"network": network, "inputs": inputs, "labels": labels, "outliers": outliers}
    exec(recipe(), names)
    ensemble = names["posterior"].sample(5)
    after = (ensemble.mean_probabilities(test).argmax(1) == test_labels).float().mean()
    assert after >= before - 0.01
    assert torch.equal(network[1].running_mean, statistics)
    assert ensemble.mean_probabilities(outliers).amax(1).mean() < confident - 0.1
