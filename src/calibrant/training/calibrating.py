"""The stage between predictions and rule: a calibrator, fitted to the validation data."""

from __future__ import annotations

from collections.abc import Mapping

from calibrant.calibrators import Calibrator
from calibrant.calibrators.base import NONE, log_probabilities
from calibrant.config.groups import CalibratorSettings
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.slots import build, lookup

STATE = "calibrator.safetensors"


def build_calibrator(settings: CalibratorSettings) -> Calibrator | None:
    """The calibrator that the settings describe, not fitted; None where they say `none`."""
    if settings.name == NONE and not settings.options:
        return None
    made: Calibrator = build("calibrator", settings.name, settings.options)
    return None if settings.name == NONE else made


def fit_calibrator(stage: Stage, calibrator: Calibrator, validation: Predictions) -> Calibrator:
    """Fit `calibrator` to the mean probabilities of the validation data, and make it the result of `stage`."""
    calibrator.fit(log_probabilities(validation.probabilities), validation.labels)
    about = {"config": calibrator.config(), "facts": calibrator.facts(), "fingerprint": calibrator.fingerprint()}
    stage.finish(about, {STATE: calibrator.state_dict()})
    return calibrator


def kept_calibrator(stage: Stage, name: str) -> Calibrator:
    """The calibrator called `name` that `fit_calibrator` made the result of `stage`."""
    found: Calibrator = lookup("calibrator", name).from_state(stage.result["config"], stage.tensors(STATE))
    return found


def calibrate_sets(calibrator: Calibrator | None, predictions: Mapping[str, Predictions]) -> dict[str, Predictions]:
    """`predictions` of every set as `calibrator` changes them; without one, as they are."""
    if calibrator is None:
        return dict(predictions)
    return {name: calibrator.calibrate(part) for name, part in predictions.items()}
