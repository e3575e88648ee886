"""What an ensemble says about a set of inputs, small enough to keep: probabilities and scores, not K times logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from calibrant.data import Augmentation, Batches
from calibrant.detectors.logits import SCORES
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.training.inputs import Examples
from calibrant.training.progress import TrainingBar
from calibrant.training.randomness import derive


@dataclass(frozen=True)
class Outputs:
    """Probabilities (N, C) of the ensemble, labels (N,) where there are any, and OOD scores (N,) by name.

    `outlier_scores` (N, S) and `gate` (N,), the selector's output, are there for selective schemes.
    """

    probabilities: Tensor
    labels: Tensor | None = None
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    outlier_scores: Tensor | None = None
    gate: Tensor | None = None

    @classmethod
    def of(cls, predictions: Predictions) -> Outputs:
        """The summary of `predictions`."""
        scores = {name: score(predictions.logits) for name, score in SCORES.items()}
        return cls(predictions.probabilities, predictions.labels, scores)

    @property
    def predictions(self) -> Predictions:
        """As predictions of one member with the same probabilities."""
        return Predictions(self.probabilities.clamp_min(torch.finfo(torch.float32).tiny).log()[None], None, self.labels)

    @property
    def confidence(self) -> Tensor:
        """(N,): the largest probability."""
        return self.probabilities.amax(-1).clamp(max=1.0)

    @property
    def predicted(self) -> Tensor:
        """(N,): the most probable class."""
        return self.probabilities.argmax(-1)

    @property
    def correct(self) -> Tensor:
        """(N,) bool; needs labels."""
        if self.labels is None:
            raise ValueError("labels are missing: the data that was predicted has none")
        return self.predicted == self.labels

    @property
    def cross_entropy(self) -> Tensor:
        """(N,): -log p(y | x); needs labels."""
        if self.labels is None:
            raise ValueError("labels are missing: the data that was predicted has none")
        own = self.probabilities.gather(1, self.labels[:, None]).squeeze(1)
        return -own.clamp_min(torch.finfo(own.dtype).tiny).log()

    def tensors(self) -> dict[str, Tensor]:
        """Everything by name, for a safetensors file."""
        named = {"probabilities": self.probabilities, "labels": self.labels}
        found = {name: value for name, value in named.items() if value is not None}
        return {**found, **{f"score:{name}": value for name, value in self.scores.items()}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Outputs:
        """The inverse of `tensors`."""
        scores = {name[6:]: value for name, value in tensors.items() if name.startswith("score:")}
        return cls(tensors["probabilities"], tensors.get("labels"), scores)


class InOrder:
    """Batches of `data` in order, as often as they are asked for, and augmented, if at all, alike every time."""

    def __init__(
        self, data: Examples, batch_size: int, augmentation: Augmentation | None = None, seed: int = 0
    ) -> None:
        self.batches = Batches(data, batch_size, shuffle=False)
        self.augmentation, self.seed = augmentation, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor] | Tensor]:
        for step, (inputs, labels) in enumerate(self.batches.epoch(0)):
            if self.augmentation is not None and inputs.dim() == 4:
                generator = torch.Generator().manual_seed(derive(self.seed, "view", step))
                inputs = self.augmentation(inputs, generator)
            yield inputs if labels is None else (inputs, labels)


def predict(
    ensemble: Ensemble,
    batches: InOrder,
    feature_layer: str | None = None,
    *,
    description: str = "predict",
    progress: bool | None = False,
) -> Predictions:
    """`ensemble` on all of `batches`, features included, with a bar if `progress` (None: on a terminal)."""
    total = len(ensemble) * batches.batches.samples
    with TrainingBar(description, total, enabled=progress, unit="images") as bar:
        return ensemble.predict(batches, feature_layer=feature_layer, progress=lambda count: bar.advance(count=count))
