"""What a training stage is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.training.randomness import derive
from calibrant.training.resume import Saver
from calibrant.training.training_data import TrainingData
from calibrant.training.validation import validate


@dataclass(frozen=True)
class StageTask:
    """Train `model` in place for `scheme` on `data`; `saver` keeps checkpoints, `on_epoch` hears of the metrics."""

    model: nn.Module
    data: TrainingData
    scheme: Scheme
    settings: Settings
    fabric: Fabric
    seed: int = 0
    saver: Saver | None = None
    on_epoch: Callable[[list[dict[str, Any]]], None] | None = None
    progress: bool | None = None

    def validate(self) -> dict[str, float]:
        """Measures of the model as it is now on the validation data."""
        posterior, engine = self.settings.posterior, self.settings.engine
        return validate(
            self.model,
            self.data.validation,
            self.fabric,
            members=posterior.validation_members,
            seed=derive(self.seed, "validation") >> 1,
            batch_size=engine.predict_batch_size,
            bins=self.settings.report.bins,
        )
