"""Small modules of every kind that a posterior must cope with, each with a batch of inputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cell = cell(5, 7, num_layers=2, batch_first=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


class Tied(nn.Module):
    """The embedding is the output layer as well."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(6, 4)
        self.head = nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embedding(tokens).mean(1))


class Unusual(nn.Module):
    """Weights used outside any layer: by reference, transposed, twice, and as a power."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5, bias=False)
        self.scale = nn.Parameter(torch.ones(3))
        self.mixer = nn.ParameterList([nn.Parameter(torch.randn(5, 3)) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(x @ self.first.weight.T) @ self.first.weight @ self.first.weight.T
        return (hidden @ self.mixer[0] + hidden.square() @ self.mixer[1]) * self.scale.exp()


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def examples() -> dict[str, tuple[nn.Module, Tensor]]:
    """Every kind by name."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(6, (4, 5), generator=generator)
    sequence = torch.randn(4, 6, 5, generator=generator)
    return {
        "linear": (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(4, 4, generator=generator)),
        "convolution": (convolutional(), torch.randn(4, 3, 6, 6, generator=generator)),
        "attention": (Attention(), tokens),
        "lstm": (Recurrent(nn.LSTM), sequence),
        "gru": (Recurrent(nn.GRU), sequence),
        "embedding": (nn.Sequential(nn.Embedding(6, 4), nn.Flatten(), nn.Linear(20, 3)), tokens),
        "tied": (Tied(), tokens),
        "unusual": (Unusual(), torch.randn(4, 4, generator=generator)),
    }
