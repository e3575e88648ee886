"""From what a trained scheme says to what is evaluated: as it is, temperature-scaled, or with another selector."""

from __future__ import annotations

from dataclasses import replace

from calibrant.calibrators.base import log_probabilities
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions
from calibrant.studies.study_trial import StudyTrial
from calibrant.training import Workspace


def predictions_of(workspace: Workspace, trial: StudyTrial) -> tuple[dict[str, Predictions], float | None]:
    """What `trial` says of every set, and the temperature, where there is one."""
    raw = ("calibrator.name=none",) if trial.readout == "temperature" else ()  # which takes the place of another one
    predictions = workspace.with_settings(*trial.overrides, *raw).predictions(trial.scheme)
    if trial.readout != "temperature":
        return predictions, None
    held_out = predictions["validation"]
    scaling = TemperatureScaling().fit(log_probabilities(held_out.probabilities), held_out.labels)
    scaled = {
        name: replace(scaling.calibrate(part), selection=part.selection, scores={})
        for name, part in predictions.items()
    }
    return scaled, scaling.temperature_


def evaluation_of(workspace: Workspace, trial: StudyTrial, predictions: dict[str, Predictions]) -> Evaluation:
    """`predictions` of `trial` as an evaluation: the selector decides where there is one, else the confidence."""
    bare = {name: replace(part, scores={}) for name, part in predictions.items()}
    return Evaluation.of(trial.name, trial.seed, bare, workspace.settings.selector.threshold)
