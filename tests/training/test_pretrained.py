"""A network that somebody else trained: its weights, its normalization, and validation data from the test part."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from calibrant.backbones import build
from calibrant.config.loading import load_settings
from calibrant.training import Workspace, open_data

OPTIONS = ("fit.epochs=0", "backbone.name=mlp-8", "data.validation_from=test", "data.validation=200")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    torch.manual_seed(1)
    torch.save(build("mlp-8", (1, 8, 8), 10).state_dict(), tmp_path / "net.pt")
    return tmp_path / "net.pt"


def workspace(weights: Path, *more: str) -> Workspace:
    settings = load_settings("embedded", overrides=[*OPTIONS, f"backbone.weights={weights}", *more])
    return Workspace(open_data(settings.data, settings.seed), settings, progress=False)


def test_without_epochs_the_network_stays_as_it_is(weights: Path) -> None:
    made = workspace(weights, "data.mean=[0.5]", "data.std=[2.0]")
    given = build("mlp-8", (1, 8, 8), 10)
    given.load_state_dict(torch.load(weights, weights_only=True))
    test = made.data.test
    expected = given((test.inputs.float() / 255 - 0.5) / 2.0).softmax(-1)
    torch.testing.assert_close(made.predictions("FNN")["test"].probabilities, expected)
    assert made.history("FNN")[0]["epoch"] == 0
    assert made.history("FNN")[0]["validation_accuracy"] == pytest.approx(made.validation("FNN")["accuracy"])


def test_validation_data_of_the_test_part_is_disjoint_from_the_test_data(weights: Path) -> None:
    data = workspace(weights).data
    assert (len(data.train), len(data.validation), len(data.test)) == (1297, 200, 300)
    chosen = data.splits["validation"]
    assert not set(chosen["validation"].tolist()) & set(chosen["test"].tolist())


def test_other_weights_are_another_result(weights: Path) -> None:
    before = workspace(weights).stage("FNN").key
    torch.save(build("mlp-8", (1, 8, 8), 10).state_dict(), weights)
    assert workspace(weights).stage("FNN").key != before
    assert workspace(weights, "data.mean=[0.5]").stage("FNN").key != workspace(weights).stage("FNN").key


def test_settings_that_do_not_fit_get_a_sentence(weights: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.mean has 3 numbers, but the inputs have 1 channels"):
        workspace(weights, "data.mean=[0.5,0.5,0.5]")
    with pytest.raises(ValueError, match="neither splits nor train"):
        workspace(weights, "data.train=100")
