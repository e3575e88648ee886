"""The third stage: what the ensemble says about validation, test and OOD data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant.config.schemes import Scheme
from calibrant.files import write_tensors
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.training import keys
from calibrant.training.inputs import Examples, TrainingData
from calibrant.training.outputs import InOrder, Outputs, predict

if TYPE_CHECKING:
    from calibrant.training.workspace import Workspace


def prediction_sets(data: TrainingData) -> dict[str, Examples]:
    """The sets that are predicted, by name."""
    sets = {"validation": data.validation, "test": data.test, **data.ood}
    return {name: part for name, part in sets.items() if part is not None}


def stage_of(workspace: Workspace, scheme: Scheme) -> Stage:
    """The predict stage of `scheme`, run or not."""
    inputs = keys.predict_inputs(scheme, workspace.settings, workspace.data, workspace.stage(scheme).key)
    return workspace.run.stage(f"predict-{scheme}", inputs)


def predict_stage(workspace: Workspace, scheme: Scheme) -> dict[str, Outputs]:
    """The outputs of `scheme` on every set, from the run directory if they are there."""
    stage, sets = stage_of(workspace, scheme), prediction_sets(workspace.data)
    if not workspace.finished(stage):
        ensemble = workspace.ensemble(scheme)
        with workspace.unfinished(stage) as to_do:
            if to_do and workspace.fabric.is_global_zero:
                size, progress = workspace.settings.engine.predict_batch_size, workspace.progress
                found = {
                    name: predict(ensemble, InOrder(part, size), description=f"{scheme} on {name}", progress=progress)
                    for name, part in sets.items()
                }
                keep(stage, found)
    return {name: Outputs.from_tensors(stage.tensors(f"{name}.safetensors")) for name in sets}


def keep(stage: Stage, predictions: dict[str, Predictions]) -> None:
    """Write the summary of `predictions` as the result of `stage`."""
    files = {
        f"{name}.safetensors": write_tensors(stage.path / f"{name}.safetensors", Outputs.of(found).tensors())
        for name, found in predictions.items()
    }
    stage.finish({"sets": list(predictions)}, files)
