"""What being Bayesian costs: a training step, and prediction with twenty members."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Row, best_of
from calibrant.backbones import MLP, WideResNet
from calibrant.posteriors.base import TrainingContext
from calibrant.posteriors.ivon import IVON
from calibrant.posteriors.mean_field import MeanField


def _steps(
    build: Callable[[], nn.Module], x: Tensor, y: Tensor, *, fuse: bool = False
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A Bayesian step (draw, forward, KL, backward) and a deterministic one (forward, backward)."""
    q, net = MeanField(build(), fuse=fuse), build()

    def bayesian() -> None:
        q.zero_grad()
        loss = F.cross_entropy(q(x), y)
        (loss + 1e-8 * q.kl()).backward()

    def deterministic() -> None:
        net.zero_grad()
        F.cross_entropy(net(x), y).backward()

    return bayesian, deterministic


def _trainings(
    build: Callable[[], nn.Module], x: Tensor, y: Tensor, *, fuse: bool = False
) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step of IVON and one of SGD with momentum, both with the step of the optimizer."""
    q, net = IVON(build(), fuse=fuse), build()
    pairs = (q, q.optimizer(TrainingContext(rate=1e-4, num_data=50_000)))
    plain = (net, torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9))

    def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return lambda: step(*pairs), lambda: step(*plain)


def rows() -> Iterator[Row]:
    """The rows of this file."""
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(100, (128,))
    a, b = best_of(5, *_steps(lambda: WideResNet(40, 2, 100), images, labels))
    yield Row("Bayesian step / deterministic, WRN-40-2, batch 128", a / b, 1.05, "lower", f"{a:.2f} s / {b:.2f} s")

    flat, digits = torch.randn(64, 784), torch.randint(10, (64,))
    for fuse, name, goal in ((True, "fuse=True", 3.0), (False, "plain", None)):
        a, b = best_of(100, *_steps(lambda: MLP(784, 10, hidden=(1200, 1200)), flat, digits, fuse=fuse))
        detail = f"{1e3 * a:.1f} ms / {1e3 * b:.1f} ms"
        what = f"Bayesian step / deterministic, MLP 784-1200-1200-10, batch 64, {name}"
        yield Row(what, a / b, goal, "lower", detail)

    a, b = best_of(5, *_trainings(lambda: WideResNet(40, 2, 100), images, labels))
    yield Row("IVON step / SGD step, WRN-40-2, batch 128", a / b, 1.05, "lower", f"{a:.2f} s / {b:.2f} s")
    a, b = best_of(100, *_trainings(lambda: MLP(784, 10, hidden=(1200, 1200)), flat, digits, fuse=True))
    what = "IVON step / SGD step, MLP 784-1200-1200-10, batch 64, fuse=True"
    yield Row(what, a / b, 2.0, "lower", f"{1e3 * a:.1f} ms / {1e3 * b:.1f} ms")

    net = WideResNet(16, 1, 100)
    ensemble, batches = MeanField(net).sample(20), [images] * 2

    @torch.no_grad()
    def plain() -> None:
        net.eval()
        for _ in range(20):
            for batch in batches:
                net(batch)

    a, b = best_of(4, lambda: ensemble.predict(batches), plain)
    yield Row(
        "prediction with 20 members / 20 forward passes, WRN-16-1", a / b, 1.03, "lower", f"{a:.2f} s / {b:.2f} s"
    )
