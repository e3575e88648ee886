"""What being Bayesian costs: a training step, and prediction with twenty members."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.measure import Row, best_of
from benchmarks.steps import steps, trainings
from calibrant.backbones import WideResNet
from calibrant.posteriors.mean_field import MeanField


def rows() -> Iterator[Row]:
    """The rows of this file."""
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(100, (128,))
    a, b = best_of(5, *steps(lambda: WideResNet(40, 2, 100), images, labels))
    yield Row("Bayesian step / deterministic, WRN-40-2, batch 128", a / b, 1.05, "lower", f"{a:.2f} s / {b:.2f} s")

    a, b = best_of(5, *trainings(lambda: WideResNet(40, 2, 100), images, labels))
    yield Row("IVON step / SGD step, WRN-40-2, batch 128", a / b, 1.05, "lower", f"{a:.2f} s / {b:.2f} s")

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
