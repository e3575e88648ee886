"""The third stage: what the ensemble says of validation, test and OOD data, small enough to keep.

Kept are the probabilities of the ensemble and the OOD scores of its logits, not K times the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant.config.loading import Settings
from calibrant.data import Augmentation, Batches
from calibrant.detectors.logits import SCORES, score_rows
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.training.progress import TrainingBar
from calibrant.training.randomness import derive
from calibrant.training.training_data import Examples, TrainingData


def prediction_sets(data: TrainingData) -> dict[str, Examples]:
    """The sets that are predicted, by name."""
    sets = {"validation": data.validation, "test": data.test, **data.ood}
    return {name: part for name, part in sets.items() if part is not None}


def predict_sets(
    ensemble: Ensemble, data: TrainingData, settings: Settings, *, about: str, progress: bool | None = False
) -> dict[str, Predictions]:
    """What `ensemble` says of every set."""
    size = settings.engine.predict_batch_size
    return {
        name: predict(ensemble, InOrder(part, size), description=f"{about} on {name}", progress=progress)
        for name, part in prediction_sets(data).items()
    }


def keep_predictions(stage: Stage, predictions: Mapping[str, Predictions]) -> dict[str, Predictions]:
    """Make the summary of `predictions` the result of `stage`, and return it."""
    kept = {name: summary(part) for name, part in predictions.items()}
    stage.finish({"sets": list(kept)}, {f"{name}.safetensors": _to_tensors(part) for name, part in kept.items()})
    return kept


def kept_predictions(stage: Stage, data: TrainingData) -> dict[str, Predictions]:
    """What `keep_predictions` made the result of `stage`, in the order in which `data` has the sets."""
    return {name: _from_tensors(stage.tensors(f"{name}.safetensors")) for name in prediction_sets(data)}


def summary(predictions: Predictions) -> Predictions:
    """`predictions` without the members' logits and features, of which the OOD scores stay."""
    scores = {name: score_rows(name, predictions.logits) for name in SCORES}
    return Predictions.from_probabilities(predictions.probabilities, predictions.labels, scores=scores)


def _to_tensors(predictions: Predictions) -> dict[str, Tensor]:
    labels = {} if predictions.labels is None else {"labels": predictions.labels}
    scores = {f"score:{name}": value for name, value in predictions.scores.items()}
    return {"probabilities": predictions.probabilities, **labels, **scores}


def _from_tensors(tensors: Mapping[str, Tensor]) -> Predictions:
    kept = [name[6:] for name in tensors if name.startswith("score:")]
    # safetensors has an order of its own; a resumed run writes its records in that of an undisturbed one.
    names = [*(name for name in SCORES if name in kept), *(name for name in kept if name not in SCORES)]
    scores = {name: tensors[f"score:{name}"] for name in names}
    return Predictions.from_probabilities(tensors["probabilities"], tensors.get("labels"), scores=scores)


class InOrder:
    """Batches of `data` in order, as often as they are asked for, and augmented, if at all, alike every time."""

    def __init__(
        self, data: Examples, batch_size: int, augmentation: Augmentation | None = None, seed: int = 0
    ) -> None:
        self.batches = Batches(data, batch_size, shuffle=False)
        self.augmentation, self.seed = augmentation, seed

    def __iter__(self) -> Iterator[Any]:
        for step, (inputs, labels) in enumerate(self.batches.epoch(0)):
            if self.augmentation is not None and isinstance(inputs, Tensor) and inputs.dim() == 4:
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
