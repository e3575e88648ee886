"""Networks with data to fit the rule to, data to test it on, and real outliers of several kinds.

Everything comes from training and validation parts, so that test parts stay unseen by what is chosen here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calibrant.adapters import FeatureTap
from calibrant.backbones import build, load_weights
from calibrant.config.loading import load_settings
from calibrant.data import open_source
from calibrant.training import Normalize, TrainingData, open_data


class Case(NamedTuple):
    """A network with its training, validation and test inputs (and labels), and real outliers by kind."""

    name: str
    network: Callable[[Tensor], tuple[Tensor, Tensor]]
    train: Tensor
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    outliers: dict[str, Tensor]


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


def pretrained(data: str, weights: str) -> tuple[nn.Module, TrainingData]:
    """The network of the profile `pretrained` with these weights, and its data."""
    settings = load_settings("pretrained", overrides=[f"data.root={data}", "data.ood=[imagenet-resize]"])
    mean, std = torch.tensor(settings.data.mean), torch.tensor(settings.data.std)
    network = Normalize(load_weights(build("resneta-20", (3, 32, 32), 10), weights), mean, std)
    return network.eval(), open_data(settings.data, settings.seed)


def cifar10(data: str, weights: str) -> Case:
    """The network of the profile `pretrained`, on its validation images alone: its test images stay unseen."""
    network, parts = pretrained(data, weights)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        with FeatureTap(network) as tap:
            logits = network(x)
            features = tap.take()
        assert features is not None
        return logits, features

    order, take = torch.randperm(5000), parts.validation.take
    train = parts.train.take(torch.randperm(50_000)[:2000])[0]
    real = {"lsun-resize": parts.uncertainty, "imagenet-resize": parts.ood["imagenet-resize"]}
    outliers = {kind: found.take(torch.randperm(len(found))[:1000])[0] for kind, found in real.items()}
    return Case("CIFAR-10, ResNet-20", run, train, take(order[:1000]), take(order[1000:3000]), outliers)


def cifar10_classes(data: str) -> Case:
    """A small network for the first six classes of CIFAR-10; the last four are outliers near to them."""
    whole = open_source(f"cifar10:{data}")
    assert whole.labels is not None
    rows, others = (torch.nonzero(known)[:, 0] for known in (whole.labels < 6, whole.labels >= 6))
    rows, others = rows[torch.randperm(len(rows))], others[torch.randperm(len(others))]
    fit, validation, tested = rows[:13_000], rows[13_000:14_000], rows[14_000:16_000]
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1))
    body.extend([nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)])
    body.extend([nn.Flatten(), nn.Linear(1024, 128), nn.ReLU()])
    network = trained(body, nn.Linear(128, 6), whole.inputs[fit] / 255 - 0.5, whole.labels[fit], 8)
    outliers = {kind: open_source(f"{kind}:{data}", split="all") for kind in ("lsun-resize", "imagenet-resize")}
    real = {kind: found.inputs[torch.randperm(10_000)[:1000]] for kind, found in outliers.items()}
    real["other classes"] = whole.inputs[others[:1000]]
    held, kept = ((whole.inputs[part], whole.labels[part]) for part in (validation, tested))
    name = "CIFAR-10 (six classes), small CNN"
    return Case(name, lambda x: network(x / 255 - 0.5), whole.inputs[fit[:2000]], held, kept, real)


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
    real = {"out of scope": tokens(queries["oos_train"] + queries["oos_val"])}
    real["other domain"] = tokens([pair for pair in queries["train"] if pair[1] in held_out][:1000])
    validation, order = part("val"), torch.randperm(len(part("val")[0]))
    held, kept = ((validation[0][rows], validation[1][rows]) for rows in order.tensor_split(2))
    name = "CLINC150, small CNN" if width > 1 else "CLINC150, bag of words"
    return Case(name, network, x, held, kept, real)


def digits_images(held_out: list[int]) -> Case:
    """Images of digits without the classes `held_out`, which are outliers near to the others."""
    whole = open_source("embedded")
    assert whole.labels is not None
    inside = torch.tensor([digit for digit in range(10) if digit not in held_out])
    known = torch.isin(whole.labels, inside)
    rows, labels = torch.nonzero(known)[:, 0], torch.searchsorted(inside, whole.labels)
    rows = rows[torch.randperm(len(rows))]
    fit, validation, tested = rows.tensor_split([6 * len(rows) // 10, 8 * len(rows) // 10])
    body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU())
    body.append(nn.Flatten()).append(nn.Linear(256, 64)).append(nn.ReLU())
    network = trained(body, nn.Linear(64, len(inside)), whole.inputs[fit] / 255, labels[fit], 30)
    real = {"other digits": whole.inputs[~known], "photographs": open_source("embedded:far").inputs}
    held, kept = ((whole.inputs[part], labels[part]) for part in (validation, tested))
    return Case("digits, CNN", lambda x: network(x / 255), whole.inputs[fit], held, kept, real)


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
