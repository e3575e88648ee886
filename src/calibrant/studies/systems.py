"""From the outputs of a trained scheme to what is evaluated: as it is, temperature-scaled, or with another selector."""

from __future__ import annotations

from dataclasses import replace

from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.evaluation import Evaluation, Outcome
from calibrant.studies.study_trial import StudyTrial
from calibrant.training import Outputs, Workspace


def outputs_of(workspace: Workspace, trial: StudyTrial) -> tuple[dict[str, Outputs], float | None]:
    """What `trial` says of every set, and the temperature, where there is one."""
    found = workspace.with_settings(*trial.overrides).outputs(trial.scheme)
    if trial.readout != "temperature":
        return found, None
    held_out = found["validation"]
    scaling = TemperatureScaling().fit(held_out.predictions.logits, held_out.labels)
    scaled = {
        name: replace(one, probabilities=scaling.probabilities(one.predictions.logits), scores={})
        for name, one in found.items()
    }
    return scaled, scaling.temperature_


def evaluation_of(workspace: Workspace, trial: StudyTrial, outputs: dict[str, Outputs]) -> Evaluation:
    """`outputs` of `trial` as an evaluation: the selector decides where there is one, else the confidence."""
    outcomes = {name: _outcome(one) for name, one in outputs.items()}
    validation, test = outcomes.pop("validation"), outcomes.pop("test", None)
    if test is None:
        raise ValueError(f"the data source {workspace.settings.data.source} has no test set; studies need one")
    from_test = workspace.settings.selector.threshold == "test"
    return Evaluation(trial.name, trial.seed, test, outcomes, None if from_test else validation)


def _outcome(outputs: Outputs) -> Outcome:
    return Outcome(outputs.confidence, outputs.predicted, outputs.labels, outputs.gate)
