"""What calibration costs: the exact kernel sum against the matrix, its growth, the regularizers' share of a step."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Row, best_of
from calibrant.backbones import WideResNet
from calibrant.losses import mmce
from calibrant.slots import build, names


def _matrix_mmce(confidence: Tensor, correct: Tensor) -> Tensor:
    error = correct - confidence
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / 0.4)
    return (error @ kernel @ error).sqrt() / len(error)


def _points(n: int) -> tuple[Tensor, Tensor]:
    return torch.rand(n), (torch.rand(n) < 0.5).float()


def rows() -> Iterator[Row]:
    """The rows of this file."""
    confidence, correct = _points(20_000)
    a, b = best_of(3, lambda: _matrix_mmce(confidence, correct), lambda: mmce(confidence, correct))
    yield Row("matrix MMCE / exact MMCE, 20,000 points", a / b, 100.0, "higher", f"{a:.2f} s / {1e3 * b:.2f} ms")

    few, many = _points(10**5), _points(10**7)
    a, b = best_of(3, lambda: mmce(*few), lambda: mmce(*many))
    exponent = math.log(b / a) / math.log(100)
    yield Row(
        "exponent of exact MMCE's time, 1e5 to 1e7 points", exponent, 1.25, "lower", f"{1e3 * a:.1f} ms to {b:.2f} s"
    )

    images, labels = torch.randn(128, 3, 32, 32), torch.randint(100, (128,))
    net = WideResNet(16, 1, 100)
    logits = torch.randn(128, 100, requires_grad=True)

    def step() -> None:
        net.zero_grad()
        F.cross_entropy(net(images), labels).backward()

    for name in names("regularizer"):
        term = build("regularizer", name)
        a, b = best_of(5, lambda term=term: term(logits, labels).backward(), step)
        detail = f"{1e3 * a:.2f} ms of {1e3 * b:.0f} ms, WRN-16-1"
        yield Row(f"share of a training step at batch 128: {name}", a / b, 0.03, "lower", detail)
