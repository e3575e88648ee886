"""What the training engine costs over a bare loop, and what augmentation costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Row, best_of
from calibrant.backbones import MLP, WideResNet
from calibrant.config.groups import EngineSettings, FitSettings
from calibrant.data import Augmentation
from calibrant.losses.objective import Objective
from calibrant.training.distributed import make_fabric
from calibrant.training.loop import Loop, Plan
from calibrant.training.step import Batch


def _loops(net: nn.Module, x: Tensor, y: Tensor, steps: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """`steps` steps of the engine, and of forward, backward and step alone."""
    engine = EngineSettings(device="cpu")
    fabric = make_fabric(engine)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    plan = Plan(
        name="benchmark",
        settings=FitSettings(epochs=1, rate=1e-4),
        objective=Objective(50_000),
        batches=lambda epoch, start: iter([Batch(x, y)] * steps),
        steps_per_epoch=steps,
        examples_per_epoch=steps * len(x),
        seed=0,
    )

    def engine_loop() -> None:
        Loop(net, plan, fabric, engine=engine, progress=False).run()

    def bare_loop() -> None:
        net.train()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    return engine_loop, bare_loop


def rows() -> Iterator[Row]:
    """The rows of this file."""
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(100, (128,))
    net = WideResNet(16, 1, 100)
    a, b = best_of(5, *_loops(net, images, labels, 4))
    yield Row("engine / bare loop, WRN-16-1, batch 128", a / b, 1.03, "lower", f"{a / 4:.3f} s / {b / 4:.3f} s a step")

    step = b / 4
    pixels, generator = torch.randint(256, (128, 3, 32, 32), dtype=torch.uint8), torch.Generator()
    (a,) = best_of(50, lambda: Augmentation()(pixels, generator))
    detail = f"{1e3 * a:.2f} ms of {1e3 * step:.0f} ms"
    yield Row("share of augmentation in a step, WRN-16-1, batch 128", a / step, 0.03, "lower", detail)

    flat, digits = torch.randn(64, 64), torch.randint(10, (64,))
    a, b = best_of(5, *_loops(MLP(64, 10, hidden=(128, 128)), flat, digits, 500))
    detail = f"{2 * a:.2f} ms / {2 * b:.2f} ms a step"
    yield Row("engine / bare loop, MLP 64-128-128-10, batch 64", a / b, None, "lower", detail)
