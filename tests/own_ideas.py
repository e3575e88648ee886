"""A user's module: one idea for each slot and a measure. `tests/test_plugin.py` gives it to `--plugin`."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import calibrant
from calibrant.calibrators import Calibrator
from calibrant.data import ArrayData, Source
from calibrant.data.synthetic.base import Synthesizer
from calibrant.detectors import LogitDetector, OutlierScore
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.ensemble import Ensemble
from calibrant.selective.objectives import SelectorExamples, SelectorObjective


@calibrant.register("regularizer", "own_gap", version="1")
class OwnGap(nn.Module):
    """(mean accuracy - mean confidence)^power."""

    def __init__(self, power: int = 2) -> None:
        super().__init__()
        self.power = power

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        confidence, predicted = logits.softmax(-1).max(-1)
        return (confidence.mean() - (predicted == labels).float().mean()).abs() ** self.power


@calibrant.register("detector", "own_radius", version="1")
class OwnRadius(OutlierScore):
    """Distance from the center of the training features, of order `p`."""

    label = "own radius"

    def __init__(self, *, p: float = 2.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.p = p

    def fit_points(self, points: Tensor) -> None:
        """Nothing to fit: the points are centered."""

    def score_points(self, points: Tensor) -> Tensor:
        return torch.linalg.vector_norm(points, self.p, dim=-1)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "p": self.p}


@calibrant.register("detector", "own_margin", version="1")
class OwnMargin(LogitDetector):
    """Minus the difference of the two largest logits."""

    label = "own margin"

    def score_logits(self, logits: Tensor) -> Tensor:
        largest = logits.topk(2, dim=-1).values
        return largest[..., 1] - largest[..., 0]


@calibrant.register("calibrator", "own_mixing", version="1")
class OwnMixing(Calibrator):
    """A mixture with the uniform distribution, of weight `share`."""

    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        self.share = share
        self.register_buffer("seen", torch.tensor(0))

    def config(self) -> dict[str, Any]:
        return {"share": self.share}

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        self.seen = torch.tensor(len(labels))

    def forward(self, z: Tensor) -> Tensor:
        return ((1 - self.share) * z.softmax(-1) + self.share / z.shape[-1]).log()

    def facts(self) -> dict[str, Any]:
        return {"seen": int(self.seen)}


@calibrant.register("posterior", "own_jitter", version="1")
class OwnJitter(Posterior):
    """The network's weights with Gaussian noise of a fixed standard deviation."""

    def __init__(self, module: nn.Module, std: float = 0.01) -> None:
        super().__init__(module)
        self.std = std

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        members = [copy.deepcopy(self.module) for _ in range(n)]
        for k, member in enumerate(members):
            generator = torch.Generator().manual_seed(seed + k)
            for parameter in member.parameters():
                parameter.data += self.std * torch.randn(parameter.shape, generator=generator)
        return Ensemble.stack(members)


@calibrant.register("objective", "own_brier", version="1")
@dataclass(frozen=True)
class OwnBrier(SelectorObjective):
    """The accepted examples' mean squared error, and a penalty that keeps half of them."""

    penalty: float = 32.0

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        gate = logits.sigmoid()
        loss = (examples.correct - examples.confidence).square()
        return (gate * loss).sum() / gate.sum() + self.penalty * (0.5 - gate.mean()).square()


@calibrant.register("source", "own_bars", version="1")
class OwnBars(Source):
    """Images of one bright row; the class is its position."""

    spec = "own_bars?count=300"
    about = "images of one bright row"
    obtain = "nothing to do"

    def __init__(self, path: str, *, count: str = "300", shift: str = "0") -> None:
        self.count, self.shift = int(count), int(shift)

    def read(self, part: str | None) -> ArrayData:
        rng = np.random.default_rng(self.shift)
        labels = np.arange(self.count) % 4
        images = rng.integers(0, 120, (self.count, 1, 8, 8), dtype=np.uint8)
        images[np.arange(self.count), 0, (2 * labels + self.shift) % 8] += 90
        return ArrayData(torch.from_numpy(images), torch.from_numpy(labels))


@calibrant.register("synthesizer", "own_transpose", version="1")
class OwnTranspose(Synthesizer):
    """Rows become columns."""

    kind = "images"

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        return inputs.transpose(2, 3).contiguous()


@calibrant.measure("own errors", "lower", "percent", "wrong with a confidence above one half", name="own_errors")
def own_errors(confidence: Any, correct: Any) -> Any:
    return np.mean((confidence > 0.5) & ~correct)
