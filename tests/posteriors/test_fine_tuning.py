"""The recipe of docs/posterior.md for a network that was trained already, run as it is written there."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from calibrant.files import DivergedError

PAGE = Path(__file__).parents[2] / "docs" / "posterior.md"


def recipe() -> str:
    section = PAGE.read_text().partition("### Fine-tuning a trained network")[2]
    found = re.search(r"```python\n(.*?)```", section, re.S)
    assert found is not None
    return found[1]


def images(count: int, brightness: float = 1.0) -> tuple[Tensor, Tensor]:
    """Noisy images whose brightness is in one of four quarters."""
    labels = torch.randint(4, (count,))
    x = 0.5 * torch.randn(count, 1, 8, 8)
    for k in range(4):
        rows, columns = 4 * (k // 2), 4 * (k % 2)
        x[labels == k, :, rows : rows + 4, columns : columns + 4] += brightness
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


@pytest.fixture(scope="module")
def fine_tuned() -> Callable[[str], tuple[float, float]]:
    """Code -> accuracy of a deeper network, before and after it was fine-tuned by it with very bright outliers."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for channels in (1, 8, 8):
        layers += [nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 4))
    inputs, labels = images(3000, 0.4)
    test, test_labels = images(1000, 0.4)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    for rows in torch.cat([torch.randperm(len(inputs)) for _ in range(3)]).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(inputs[rows]), labels[rows]).backward()
        optimizer.step()
    before = accuracy(network, test, test_labels)

    def tune(code: str) -> tuple[float, float]:
        torch.manual_seed(1)
        outliers = 10 + 3 * torch.randn(500, 1, 8, 8)
        names = {"network": copy.deepcopy(network), "inputs": inputs[:320], "labels": labels[:320]}
        names["outliers"] = outliers
        exec(code, names)
        probabilities = names["posterior"].sample(5).mean_probabilities(test)
        return before, float((probabilities.argmax(1) == test_labels).float().mean())

    return tune


def test_the_recipe_keeps_the_accuracy_that_its_opposites_lose(
    fine_tuned: Callable[[str], tuple[float, float]],
) -> None:
    before, after = fine_tuned(recipe())
    assert before > 0.9
    assert after > before - 0.02
    assert fine_tuned(recipe().replace("layer.eval()", "pass"))[1] < before - 0.1, "with statistics that move"
    fast, clipped = recipe().replace("lr=0.003", "lr=0.03"), re.compile(r".*clip_grad_norm_.*\n")
    assert clipped.search(fast)
    with pytest.raises(DivergedError):
        fine_tuned(clipped.sub("", fast))


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
def test_the_recipe_freezes_batch_norm_of_all_dimensions(kind: type[nn.Module]) -> None:
    size = {nn.BatchNorm1d: 1, nn.BatchNorm2d: 2, nn.BatchNorm3d: 3}[kind]
    network = nn.Sequential(nn.Unflatten(1, (4, *(1,) * size)), kind(4), nn.Flatten(), nn.Linear(4, 2))
    inputs = torch.randn(64, 4)
    names = {"network": network, "inputs": inputs, "labels": (inputs[:, 0] > 0).long(), "outliers": 10 + inputs}
    exec(recipe(), names)
    assert torch.equal(network[1].running_mean, torch.zeros(4))
