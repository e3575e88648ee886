"""From what a trained scheme says to what is evaluated: as it is, temperature-scaled, or with another selector."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions
from calibrant.studies.study_trial import StudyTrial
from calibrant.training import Workspace


def predictions_of(workspace: Workspace, trial: StudyTrial) -> tuple[dict[str, Predictions], float | None]:
    """What `trial` says of every set, and the temperature, where there is one."""
    predictions = workspace.with_settings(*trial.overrides).predictions(trial.scheme)
    if trial.readout != "temperature":
        return predictions, None
    held_out = predictions["validation"]
    scaling = TemperatureScaling().fit(_logits(held_out), held_out.labels)

    def scaled(part: Predictions) -> Predictions:
        probabilities = scaling.probabilities(_logits(part))
        return Predictions.from_probabilities(probabilities, part.labels, selection=part.selection)

    return {name: scaled(part) for name, part in predictions.items()}, scaling.temperature_


def _logits(predictions: Predictions) -> Tensor:
    """Logits (1, N, C) of one member with the same probabilities."""
    tiny = torch.finfo(torch.float32).tiny
    logits: Tensor = predictions.probabilities.clamp_min(tiny).log()[None]
    return logits


def evaluation_of(workspace: Workspace, trial: StudyTrial, predictions: dict[str, Predictions]) -> Evaluation:
    """`predictions` of `trial` as an evaluation: the selector decides where there is one, else the confidence."""
    bare = {name: replace(part, scores={}) for name, part in predictions.items()}
    return Evaluation.of(trial.name, trial.seed, bare, workspace.settings.selector.threshold)
