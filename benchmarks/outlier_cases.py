"""Networks with validation data, test data and real outliers of several kinds, for `benchmarks/synthetic_outliers.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.data import open_source
from calibrant.data.images import resize


class Case(NamedTuple):
    """A network with its training, validation and test inputs (and labels), and real outliers by kind."""

    name: str
    network: Callable[[Tensor], tuple[Tensor, Tensor]]
    train: Tensor
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    outliers: dict[str, Tensor]


class ResNet20(nn.Module):
    """ResNet-20 for CIFAR with shortcuts of option A (He et al. 2016), under the names of the public checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        for stage, (inner, outer) in enumerate(((16, 16), (16, 32), (32, 64)), start=1):
            blocks = [self._block(inner if i == 0 else outer, outer, 1 if i or stage == 1 else 2) for i in range(3)]
            setattr(self, f"layer{stage}", nn.ModuleList(blocks))
        self.linear = nn.Linear(64, 10)

    @staticmethod
    def _block(inner: int, outer: int, stride: int) -> nn.ModuleDict:
        first = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        second = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        return nn.ModuleDict(
            {"conv1": first, "bn1": nn.BatchNorm2d(outer), "conv2": second, "bn2": nn.BatchNorm2d(outer)}
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        x = self.bn1(self.conv1((x / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1))).relu()
        for block in (*self.layer1, *self.layer2, *self.layer3):  # type: ignore[misc]
            y = block["bn2"](block["conv2"](block["bn1"](block["conv1"](x)).relu()))
            pad = (y.shape[1] - x.shape[1]) // 2
            x = (y + (F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad)) if pad else x)).relu()
        features = x.mean((2, 3))
        return self.linear(features), features


def trained(body: nn.Module, head: nn.Module, x: Tensor, y: Tensor, epochs: int) -> Callable[[Tensor], Any]:
    """A small network, trained with Adam; returns x -> (logits, features)."""
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 2e-3, weight_decay=1e-4)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(head(body(x[rows])), y[rows]).backward()
            optimizer.step()
    body.eval()
    return lambda batch: (head(body(batch)), body(batch))


def cifar10(data: str, weights: str) -> Case:
    network = ResNet20()
    state = torch.load(weights, weights_only=True)["state_dict"]
    network.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    test, order = open_source(f"cifar10:{data}", split="test"), torch.randperm(10_000)
    assert test.labels is not None
    outliers = {kind: open_source(f"{kind}:{data}", split="all") for kind in ("lsun-resize", "imagenet-resize")}
    outliers["cifar100"] = open_source(f"cifar100:{data}", split="test")
    real = {kind: found.inputs[torch.randperm(10_000)[:1000]] for kind, found in outliers.items()}
    real["letters"] = resize(open_source("embedded:near").inputs, (32, 32)).expand(-1, 3, -1, -1)
    validation, rest = order[:1000], order[1000:3000]
    train = open_source(f"cifar10:{data}").inputs[torch.randperm(50_000)[:2000]]
    parts = [(test.inputs[rows], test.labels[rows]) for rows in (validation, rest)]
    return Case("CIFAR-10, ResNet-20", network.eval(), train, parts[0], parts[1], real)


def digits_images() -> Case:
    train, test = open_source("embedded"), open_source("embedded", split="test")
    assert train.labels is not None and test.labels is not None
    order = torch.randperm(len(train))
    fit, validation = order[:900], order[900:]
    body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU())
    body.append(nn.Flatten()).append(nn.Linear(256, 64)).append(nn.ReLU())
    network = trained(body, nn.Linear(64, 10), train.inputs[fit] / 255, train.labels[fit], 30)
    real = {kind: open_source(f"embedded:{kind}", split="test").inputs for kind in ("near", "far")}
    held = (train.inputs[validation], train.labels[validation])
    return Case("digits, CNN", lambda x: network(x / 255), train.inputs[fit], held, (test.inputs, test.labels), real)


def table(name: str, loaded: Any, held_out: list[int]) -> Case:
    """A table without the classes `held_out`, which are kinds of outliers."""
    x = torch.tensor(loaded.data, dtype=torch.float32)
    x, y = (x - x.mean(0)) / x.std(0).clamp(min=1e-6), torch.tensor(loaded.target)
    inside = torch.nonzero(~torch.isin(y, torch.tensor(held_out)))[:, 0]
    inside = inside[torch.randperm(len(inside))]
    fit, validation, test = inside.tensor_split([len(inside) // 2, 3 * len(inside) // 4])
    labels = torch.searchsorted(y[inside].unique(), y)
    body = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
    network = trained(body, nn.Linear(64, len(y[inside].unique())), x[fit], labels[fit], 40)
    real = {f"class {kind}": x[y == kind] for kind in held_out}
    return Case(name, network, x[fit], (x[validation], labels[validation]), (x[test], labels[test]), real)
