"""Networks with validation data, test data and real outliers of several kinds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
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
        """Logits and features of uint8 images."""
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
    state = torch.load(weights, map_location="cpu", weights_only=True)["state_dict"]
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


def cifar10_classes(data: str) -> Case:
    """A small network for the first six classes of CIFAR-10; the last four are outliers near to them."""
    train, test = open_source(f"cifar10:{data}"), open_source(f"cifar10:{data}", split="test")
    assert train.labels is not None
    assert test.labels is not None
    rows = torch.nonzero(train.labels < 6)[:, 0]
    rows = rows[torch.randperm(len(rows))[:14_000]]
    fit, validation, inside = rows[:13_000], rows[13_000:], torch.nonzero(test.labels < 6)[:2000, 0]
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1))
    body.extend([nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)])
    body.extend([nn.Flatten(), nn.Linear(1024, 128), nn.ReLU()])
    network = trained(body, nn.Linear(128, 6), train.inputs[fit] / 255 - 0.5, train.labels[fit], 8)
    outliers = {kind: open_source(f"{kind}:{data}", split="all") for kind in ("lsun-resize", "imagenet-resize")}
    real = {kind: found.inputs[torch.randperm(10_000)[:1000]] for kind, found in outliers.items()}
    real["other classes"] = test.inputs[test.labels >= 6][:1000]
    real["letters"] = resize(open_source("embedded:near").inputs, (32, 32)).expand(-1, 3, -1, -1)
    held, tested = (train.inputs[validation], train.labels[validation]), (test.inputs[inside], test.labels[inside])
    name = "CIFAR-10 (six classes), small CNN"
    return Case(name, lambda x: network(x / 255 - 0.5), train.inputs[fit[:2000]], held, tested, real)


class TextNetwork(nn.Module):
    """Features of token ids (N, L): embeddings, a convolution over `width` tokens, the maximum over the text."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 64)
        self.convolution = nn.Conv1d(64, 128, width, padding=width // 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Features (N, 128)."""
        features: Tensor = self.convolution(self.embedding(tokens).transpose(1, 2))
        return features.relu().amax(2)


def clinc150(folder: Path, width: int) -> Case:
    """Queries of CLINC150 (Larson et al. 2019); outliers are its out-of-scope queries, and the intents of a domain.

    A network of `width` 1 does not see the order of the words.
    """
    queries = json.loads((folder / "data_full.json").read_text())
    domains = json.loads((folder / "domains.json").read_text())
    held_out = {intent.replace(" ", "_") for intent in next(iter(domains.values()))}
    intents = sorted({intent for _, intent in queries["train"]} - held_out)
    words = sorted({word for text, intent in queries["train"] if intent not in held_out for word in text.split()})
    ids = {word: index for index, word in enumerate(words, start=2)}

    def tokens(pairs: list[tuple[str, str]]) -> Tensor:
        texts = [[ids.get(word, 1) for word in text.split()[:20]] for text, _ in pairs]
        return torch.tensor([text + [0] * (20 - len(text)) for text in texts])

    def part(name: str) -> tuple[Tensor, Tensor]:
        inside = [pair for pair in queries[name] if pair[1] not in held_out]
        return tokens(inside), torch.tensor([intents.index(intent) for _, intent in inside])

    x, y = part("train")
    network = trained(TextNetwork(len(ids) + 2, width), nn.Linear(128, len(intents)), x, y, 8)
    real = {"out of scope": tokens(queries["oos_test"])}
    real["other domain"] = tokens([pair for pair in queries["test"] if pair[1] in held_out])
    name = "CLINC150, small CNN" if width > 1 else "CLINC150, bag of words"
    return Case(name, network, x, part("val"), part("test"), real)


def digits_images() -> Case:
    train, test = open_source("embedded"), open_source("embedded", split="test")
    assert train.labels is not None
    assert test.labels is not None
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
