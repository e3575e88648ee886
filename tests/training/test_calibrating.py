"""The calibrate stage: downstream of training, fitted to validation data, known to the selector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import TINY, TINY_OPTIONS, Caller, call

from calibrant.calibrators import TemperatureScaling
from calibrant.config.loading import load_settings
from calibrant.deploy import load
from calibrant.deploy.deploying import predictor_of
from calibrant.training import Workspace, open_data

__all__ = ["call"]
VIEWS = ("selector.views=3", "selector.entropy=true")


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    settings = load_settings("embedded", overrides=TINY)
    data = open_data(settings.data, settings.seed)
    return Workspace(data, settings, tmp_path_factory.mktemp("run"), progress=False)


def names(workspace: Workspace) -> set[str]:
    return {folder.name for folder in (workspace.run.root / "stages").iterdir()}


def test_the_trained_stages_stay_valid_and_the_temperature_is_that_of_the_validation_data(raw: Workspace) -> None:
    before = raw.train("SBNN", "BNN")
    stages = names(raw)
    calibrated = raw.with_settings("calibrator.name=temperature")
    after = calibrated.train("SBNN", "BNN")
    made = names(raw) - stages
    assert sorted(name.rpartition("-")[0] for name in made) == ["calibrate-BNN", "select-SBNN"]
    held_out = before["BNN"]["validation"]
    logits = calibrated.ensemble("BNN").predict([raw.data.validation.inputs]).logits
    scaling = TemperatureScaling().fit(logits, held_out.labels)
    for name, part in before["BNN"].items():
        by_hand = (part.probabilities.log() / scaling.temperature_).softmax(-1)
        torch.testing.assert_close(after["BNN"][name].probabilities, by_hand, atol=2e-5, rtol=1e-3)
        torch.testing.assert_close(after["SBNN"][name].probabilities, after["BNN"][name].probabilities)
        assert torch.equal(after["BNN"][name].predicted, part.predicted)
    assert raw.with_settings("calibrator.name=none").predictions("BNN")["test"].calibrator == "none"


@pytest.mark.parametrize("extra", [(), VIEWS], ids=["plain", "views"])
def test_the_selector_is_fitted_to_calibrated_confidences_and_deployed_with_them(
    raw: Workspace, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    workspace = raw.with_settings("calibrator.name=temperature", *extra)
    selection = workspace.selection("SFNN")
    assert isinstance(selection.calibrator, TemperatureScaling)
    assert selection.selector.calibrator == selection.calibrator.fingerprint()
    again = workspace.selection("SFNN")  # from the files
    assert torch.equal(again.predictions["test"].acceptance, selection.predictions["test"].acceptance)
    assert again.selector.calibrator == selection.selector.calibrator
    predictor = predictor_of(workspace, "SFNN", selection)
    decision = load(predictor.save(tmp_path / "folder"))(raw.data.test.inputs)
    torch.testing.assert_close(decision.acceptance, selection.predictions["test"].acceptance, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(decision.confidence, selection.predictions["test"].confidence)
    gates = selection.selector.gates
    validation = predictor(raw.data.validation.inputs)
    torch.testing.assert_close(validation.acceptance.sort().values, gates, atol=1e-4, rtol=1e-3)


def test_wrong_options_are_refused_before_training(raw: Workspace) -> None:
    settings = raw.settings.changed({"calibrator": {"name": "temperature", "options": {"bins": 3}}})
    with pytest.raises(ValueError, match="calibrator temperature has no option 'bins'; it has none"):
        Workspace(raw.data, settings)


def test_the_command_line_trains_describes_and_predicts_with_it(call: Caller, tmp_path: Path) -> None:
    out = tmp_path / "run"
    call("train", *TINY_OPTIONS, "-s", "FNN", "--calibrator", "temperature", "--out", out)
    about = json.loads(call("info", "predictor", out, "--json").out)
    assert about["calibrator"] == "temperature"
    assert 0.01 < about["temperature"] < 100
    assert "temperature" in call("info", "predictor", out, "--scheme", "FNN").out
    call("predict", out, "embedded:near", "--coverage", "0.5", "--out", tmp_path / "answers.csv")
    call("evaluate", out)
    assert "calibrator.name=temperature" in call.refused("train", *TINY_OPTIONS, "-s", "FNN", "--out", out)
    assert "did you mean temperature" in call.refused("train", "--calibrator", "temprature", "--out", out)
