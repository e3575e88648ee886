"""A trained network and a folder of images: every kind of network, its features, its data, its predictor."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from vision_networks import (
    CLASSES,
    KINDS,
    MEAN,
    STD,
    TimmNetwork,
    TorchvisionResNet,
    colored,
    trained_state,
    write_noise,
    write_photos,
)

from calibrant import load
from calibrant.config.loading import Settings, load_settings
from calibrant.data import ImageTransform
from calibrant.deploy.own_network import calibrate_network, transform_of
from calibrant.training import open_data

TRANSFORM = ImageTransform(mean=MEAN, std=STD)


def trained(kind: type[nn.Module]) -> nn.Module:
    network = kind()
    network.load_state_dict(trained_state(kind))
    return network.eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    write_photos(root / "photos")
    write_noise(root / "noise")
    return root


def settings(folder: Path, *more: str) -> Settings:
    return load_settings("own-network", None, [f"data.source={folder / 'photos'}", "report.resamples=20", *more])


@pytest.mark.parametrize("kind", KINDS)
def test_networks_built_as_in_torchvision_and_timm(kind: type[nn.Module], folder: Path) -> None:
    network = trained(kind)
    found = calibrate_network(network, settings(folder), transform=TRANSFORM, progress=False)
    assert found.accuracy > 0.6
    x, _ = colored(20, seed=5)
    decision = found.predictor(x)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    with torch.no_grad():
        raw = network((x / 255 - mean) / std)
    assert torch.equal(decision.predicted, raw.argmax(-1))
    temperature = found.predictor.calibrator.facts()["temperature"]  # type: ignore[union-attr]
    torch.testing.assert_close(decision.probabilities, (raw / temperature).softmax(-1), atol=1e-5, rtol=1e-4)
    linear = any(isinstance(module, nn.Linear) for module in network.modules())
    assert found.predictor.outliers.scores == (("knn", "energy", "gen") if linear else ("energy", "gen"))  # type: ignore[union-attr]


def test_the_table_has_the_baselines_at_equal_coverage_and_counts_outliers(folder: Path) -> None:
    changed = settings(folder, f"data.uncertainty={folder / 'noise'}", f"data.ood=['{folder / 'photos' / 'red'}']")
    found = calibrate_network(trained(TorchvisionResNet), changed, transform=TRANSFORM, progress=False, coverage=0.7)
    assert list(dict.fromkeys(row.system for row in found.rows)) == [
        "network",
        "network + temperature",
        "network + trust",
    ]
    assert {row.wanted_coverage for row in found.rows} == {1.0, 0.7}
    assert {(row.ood, row.n_ood) for row in found.rows} == {("noise", 60), ("red", 80)}
    before, scaled, _ = found.evaluations
    assert (before.id.predicted == scaled.id.predicted).all()
    deployed = found.deployed()
    accepted = found.evaluations[-1].id.acceptance >= found.predictor.threshold
    assert deployed["answered"] == pytest.approx(accepted.mean())
    assert deployed["wrong"] == pytest.approx(1 - found.evaluations[-1].id.correct[accepted].mean())


def test_the_parts_of_the_data_are_disjoint_and_a_fifth_tests(folder: Path) -> None:
    data = open_data(settings(folder).data, 0)
    assert (len(data.train), len(data.validation), len(data.test or ())) == (48, 144, 48)
    everything = torch.cat([part.inputs for part in (data.train, data.validation, data.test)])  # type: ignore[union-attr]
    assert len(everything.flatten(1).unique(dim=0)) == 240


def test_with_parts_the_training_part_is_what_the_network_was_trained_on(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos" / "train", 60)
    write_photos(tmp_path / "photos" / "test", 240)
    found = calibrate_network(trained(TorchvisionResNet), settings(tmp_path), transform=TRANSFORM, progress=False)
    assert len(found.evaluations[0].id) == 120
    assert len(found.evaluations[0].validation or ()) == 120


def test_a_test_set_of_its_own(folder: Path, tmp_path: Path) -> None:
    write_photos(tmp_path / "later", 30, side=16)
    changed = settings(folder, f"data.test_source={tmp_path / 'later'}")
    own = ImageTransform(size=8, mean=MEAN, std=STD)
    found = calibrate_network(trained(TorchvisionResNet), changed, transform=own, progress=False)
    assert len(found.evaluations[0].id) == 30
    assert len(found.evaluations[0].validation or ()) == 180
    unlabeled = settings(folder, f"data.test_source={folder / 'noise'}")
    with pytest.raises(ValueError, match="noise has no labels, without which nothing can be fitted or measured"):
        calibrate_network(trained(TorchvisionResNet), unlabeled, transform=own)


def test_class_names_in_the_order_of_the_outputs(folder: Path) -> None:
    data = open_data(settings(folder, "data.classes=[red, violet, blue, green]").data, 0)
    plain = open_data(settings(folder).data, 0)
    names = [data.train.classes[label] for label in data.train.labels]  # type: ignore[index,union-attr]
    assert names == [CLASSES[label] for label in plain.train.labels]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="has the class 'green', which is not among the 2 that were named"):
        open_data(settings(folder, "data.classes=[red, blue]").data, 0)
    four = TorchvisionResNet(num_classes=4)
    with pytest.raises(
        ValueError, match=r"module has 4 outputs, but the training data has 3 classes; .*--classes FILE"
    ):
        calibrate_network(four, settings(folder), transform=TRANSFORM)


def test_a_wrong_order_of_classes_is_pointed_out(folder: Path) -> None:
    wrong = settings(folder, "data.classes=[green, red, blue]")
    with pytest.warns(
        UserWarning, match=r"right on only .* check its weights, the normalization .* order of the classes"
    ):
        calibrate_network(trained(TorchvisionResNet), wrong, transform=TRANSFORM, progress=False)


def test_timm_brings_its_own_transform(folder: Path) -> None:
    expected = ImageTransform(8, 0.8, MEAN, STD, "bicubic", 3)
    assert transform_of(TimmNetwork()) == expected
    assert transform_of(TorchvisionResNet()) is None


def test_the_run_has_a_page_a_table_and_a_certified_predictor_that_resizes(folder: Path, tmp_path: Path) -> None:
    network, out = trained(TorchvisionResNet), tmp_path / "new" / "run"
    steps: list[str] = []
    found = calibrate_network(
        network,
        settings(folder, "rule.max_error=0.6", "rule.max_outliers=0.9", "rule.delta=0.2"),
        out,
        transform=TRANSFORM,
        factory="nets:make",
        on_step=lambda *step: steps.append(step[0]),
    )
    assert {path.name for path in out.iterdir()} >= {"report.html", "table.csv", "run.json", "predictors"}
    assert steps[0] == "read the data"
    assert steps[-1] == "done"
    predictor = load(out / "predictors" / "network+trust", TorchvisionResNet())
    assert predictor.transform == ImageTransform(size=8, channels=3)
    assert predictor.certificate is not None
    assert predictor.certificate == found.predictor.certificate
    told = re.search(r'id="payload">(.*?)</script>', (out / "report.html").read_text(), re.DOTALL)
    assert told
    (certified,) = json.loads(told[1])["certificates"]["network + trust"]
    assert certified["sentence"] == predictor.certificate.sentence()
    x, _ = colored(10, seed=6)
    assert torch.equal(predictor(x).probabilities, found.predictor(x).probabilities)
    large = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    expected = predictor(ImageTransform(size=8).shaped(large)).probabilities
    torch.testing.assert_close(predictor(large).probabilities, expected)
    with pytest.raises(ValueError, match="run is not empty; choose another output folder"):
        calibrate_network(network, settings(folder), out, transform=TRANSFORM)


def test_nothing_is_written_when_it_fails(folder: Path, tmp_path: Path) -> None:
    wrong = settings(folder, "rule.max_error=0.01", "rule.max_outliers=0.5", f"data.uncertainty={folder / 'noise'}")
    wrong = wrong.changed({"data": {"uncertainty_size": 10}})
    with pytest.raises(ValueError, match="more than 20 outliers"):
        calibrate_network(trained(TorchvisionResNet), wrong, tmp_path / "run", transform=TRANSFORM, progress=False)
    assert not (tmp_path / "run").exists()
