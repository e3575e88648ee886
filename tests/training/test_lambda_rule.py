"""The choice of lambda: the rule by itself, and its trials as ordinary runs."""

import pytest
import torch

from calibrant.config.loading import load_settings
from calibrant.training import TrainingData, Trial, Workspace, choose, open_data, select_lambda


def test_the_lowest_ece_within_the_drop_wins():
    baseline = Trial(0.0, 0.80, 0.10)
    trials = [Trial(0.2, 0.79, 0.08), Trial(1.0, 0.785, 0.05), Trial(4.0, 0.7849, 0.01), Trial(10.0, 0.5, 0.0)]
    assert choose(baseline, trials) == 1.0  # a drop of exactly 1.5 points is allowed
    assert choose(baseline, trials, max_accuracy_drop=0.5) == 10.0
    assert choose(baseline, trials, max_accuracy_drop=0.001) == 0.0


def test_of_equal_eces_the_smaller_lambda_wins():
    assert choose(Trial(0, 1, 0.1), [Trial(3, 1, 0.05), Trial(2, 1, 0.05)]) == 2


@pytest.fixture
def workspace(tmp_path):
    fast = ("fit.epochs=3", "backbone.name=mlp-8", "posterior.members=2", "calibration.grid=[0.5, 2]")
    settings = load_settings("embedded", overrides=fast)
    data = open_data(settings.data, seed=0)
    some = torch.arange(128)
    return Workspace(TrainingData(data.train.subset(some), data.validation.subset(some), data.test), settings, tmp_path)


def names(workspace):
    return sorted(folder.name.rpartition("-")[0] for folder in (workspace.run.root / "stages").iterdir())


def test_trials_are_ordinary_runs_and_nothing_but_validation_data_is_looked_at(workspace):
    plain = workspace.with_settings("calibration.weight.bayesian=2")
    before = plain.model("CBNN")
    choice = select_lambda(workspace, "SCBNN-OCM")
    assert [trial.weight for trial in choice.trials] == [0.5, 2.0]
    assert names(workspace) == ["fit-BNN", "fit-CBNN", "fit-CBNN", "validate-BNN", "validate-CBNN", "validate-CBNN"]
    assert choice.weight in (0.0, 0.5, 2.0)
    assert choice.weight == choose(choice.baseline, choice.trials)
    found = plain.validation("CBNN")
    assert (found["accuracy"], found["ece"]) == (choice.trials[1].accuracy, choice.trials[1].ece)
    with torch.no_grad():
        probabilities = plain.ensemble("CBNN").mean_probabilities(workspace.data.validation.inputs)
    correct = probabilities.argmax(1) == workspace.data.validation.labels
    assert found["accuracy"] == pytest.approx(float(correct.float().mean()))
    assert all(torch.equal(a, b) for a, b in zip(before.parameters(), plain.model("CBNN").parameters()))


def test_an_interrupted_selection_goes_on(workspace, monkeypatch):
    select_lambda(workspace, "CFNN", grid=[0.5])
    calls = []
    from calibrant.training import workspace as module

    fit = module.train_stage
    monkeypatch.setattr(module, "train_stage", lambda task: calls.append(task.settings) or fit(task))
    choice = select_lambda(workspace, "CFNN")
    assert [settings.calibration.weight.of("frequentist") for settings in calls] == [2.0]
    assert len(choice.trials) == 2


def test_a_scheme_without_regularizer_has_no_lambda(workspace):
    with pytest.raises(ValueError, match="BNN has no calibration regularizer"):
        select_lambda(workspace, "BNN-OCM")
