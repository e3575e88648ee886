"""All schemes on the embedded data: they learn, share their stages, and minimize what they say they do."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.deploy import load
from calibrant.deploy.deploying import predictor_of
from calibrant.detectors.logits import energy
from calibrant.files import RunError
from calibrant.losses import mmce
from calibrant.metrics import ood_detection_probability
from calibrant.posteriors.mean_field import MeanField
from calibrant.predictions import Predictions
from calibrant.training import TrainingData, Workspace, open_data
from calibrant.training.batching import BatchSource
from calibrant.training.randomness import seeded
from calibrant.training.step import Draws, loss_terms
from calibrant.training.train_stage import stage_objective

EIGHT = [str(scheme) for scheme in Scheme.all() if not scheme.selective]


@pytest.fixture(scope="module")
def data():
    return open_data(load_settings("embedded").data, seed=0)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """All sixteen, with fewer members and a smaller forest than the profile, which changes no training."""
    fewer = ("posterior.members=3", "outliers.trees=20", "outliers.max_points=300", "selector.steps=50")
    settings = load_settings("embedded", overrides=fewer)
    workspace = Workspace(data, settings, tmp_path_factory.mktemp("run"))
    return workspace, workspace.train(*Scheme.all())


def stages(workspace):
    folders = (workspace.run.root / "stages").iterdir()
    return sorted(folder.name.rpartition("-")[0] for folder in folders)


def test_four_fits_four_fine_tunes_eight_selectors(trained):
    workspace, outputs = trained
    names = stages(workspace)
    assert [name for name in names if name.startswith("fit-")] == ["fit-BNN", "fit-CBNN", "fit-CFNN", "fit-FNN"]
    assert sum(name.startswith("fine-tune-") for name in names) == 4
    assert sum(name.startswith("predict-") for name in names) == 8
    assert sum(name.startswith("select-") for name in names) == 8
    assert len(outputs) == 16
    assert set(outputs["SCBNN-OCM"]) == {"validation", "test", "near", "far"}


def test_nothing_runs_twice(trained, monkeypatch):
    workspace, outputs = trained

    def refuse(*args, **kwargs):
        raise AssertionError("a finished stage was run again")

    monkeypatch.setattr("calibrant.training.workspace.train_stage", refuse)
    for name in ("workspace.predict_sets", "selecting.score_sets", "selecting.fit_selector"):
        monkeypatch.setattr(f"calibrant.training.{name}", refuse)
    again = Workspace(workspace.data, workspace.settings, workspace.run.root).train("SCBNN-OCM", "BNN")
    assert torch.equal(again["BNN"]["test"].probabilities, outputs["BNN"]["test"].probabilities)


@pytest.mark.parametrize("scheme", EIGHT)
def test_accuracy_is_over_ninety_percent(trained, scheme):
    assert float(trained[1][scheme]["test"].correct.float().mean()) > 0.9


@pytest.mark.parametrize("scheme", [name for name in EIGHT if name.endswith("OCM")])
def test_ocm_raises_the_ood_detection_probability(trained, scheme):
    def detection(name):
        found = trained[1][name]
        return [ood_detection_probability(found["test"].confidence, found[s].confidence) for s in ("near", "far")]

    assert all(float(after) > float(before) for after, before in zip(detection(scheme), detection(scheme[:-4])))


@pytest.mark.parametrize(("plain", "calibrated"), [("FNN", "CFNN"), ("BNN", "CBNN")])
def test_the_regularizer_lowers_the_training_mmce(trained, plain, calibrated):
    """Right after a short training, in which nothing is fitted perfectly yet."""
    workspace = trained[0].with_settings("fit.epochs=6", "calibration.regularizer=mmce", "calibration.weight=4")

    def training_mmce(scheme):
        train = workspace.data.train
        with torch.no_grad():
            probabilities = workspace.ensemble(scheme).mean_probabilities(train.inputs)
        confidence, predicted = probabilities.max(1)
        return float(mmce(confidence.clamp(max=1), predicted == train.labels))

    assert training_mmce(calibrated) < training_mmce(plain)


def test_selective_outputs_have_scores_gates_and_a_threshold(trained):
    workspace, outputs = trained
    found = outputs["SCBNN-OCM"]["test"]
    scores = found.columns(workspace.settings.outliers.scores)
    assert scores.shape == (500, 4)
    assert found.selection.shape == (500,)
    selection = workspace.selection("SCBNN-OCM")
    accepted = selection.selector.accept(found.confidence, scores)
    assert 0.3 < float(accepted.float().mean()) < 0.7


def test_outputs_survive_the_disk_and_agree_with_the_ensemble(trained):
    workspace, outputs = trained
    found = outputs["BNN"]["test"]
    with torch.no_grad():
        logits = workspace.ensemble("BNN")(workspace.data.test.inputs)
    assert torch.allclose(found.probabilities, logits.softmax(-1).mean(0), atol=1e-6)
    assert torch.allclose(found.scores["energy"], energy(logits), atol=1e-5)
    own = found.probabilities[torch.arange(500), workspace.data.test.labels]
    assert torch.allclose(found.cross_entropy, -own.log(), atol=1e-5)
    with pytest.raises(ValueError, match="labels are missing"):
        _ = Predictions.from_probabilities(found.probabilities).correct


@pytest.mark.parametrize("scheme", ["FNN", "CBNN-OCM"])
def test_loss_terms_are_those_recomputed_by_hand(trained, scheme):
    workspace, scheme = trained[0], Scheme.parse(scheme)
    model, settings, data = workspace.model(scheme), workspace.settings, workspace.data
    source = BatchSource(
        data.train, 32, workspace.fabric, seed=1, outliers=(data.uncertainty, 64) if scheme.ocm else None
    )
    batch = next(source(0, 0))
    objective = stage_objective(scheme, settings.with_("finetune.gamma=0.5"), len(data.train))
    with seeded(0), torch.no_grad():
        terms = loss_terms(Draws(model), objective, batch, workspace.fabric)
    with seeded(0), torch.no_grad():
        logits = model(batch.together()).double()
    labels = batch.labels
    expected = functional.cross_entropy(logits[:32], labels)
    assert float(terms["cross_entropy"]) == pytest.approx(float(expected), rel=1e-4)
    if scheme.ocm:
        confidence, predicted = logits[:32].softmax(-1).max(1)
        weights = weighted_errors(confidence, predicted == labels)
        kernel = torch.exp(-(confidence[:, None] - confidence).abs() / 0.4)
        calibration = (weights @ kernel @ weights).clamp_min(0).sqrt()
        minimization = -logits[32:].log_softmax(-1).mean()
        divergence = gaussian_kl(model)
        assert float(terms["calibration"]) == pytest.approx(float(calibration), rel=1e-3)
        assert float(terms["ocm"]) == pytest.approx(float(minimization), rel=1e-4)
        assert float(terms["kl"]) == pytest.approx(float(divergence), rel=1e-4)
        weight = settings.calibration.weight.of("bayesian")
        expected = expected + 0.00035 / len(data.train) * divergence + weight * calibration + 0.5 * minimization
    assert float(terms["loss"]) == pytest.approx(float(expected), rel=1e-4)
    assert float(terms["accuracy"]) == float((logits[:32].argmax(1) == labels).double().mean())


def weighted_errors(confidence, correct):
    right, wrong = correct.sum(), (~correct).sum()
    return torch.where(correct, (1 - confidence) / right.clamp(min=1), -confidence / wrong.clamp(min=1))


def gaussian_kl(model: MeanField):
    total = torch.zeros((), dtype=torch.float64)
    prior = torch.distributions.Normal(torch.zeros(()).double(), torch.tensor(model.prior_std).double())
    for name, std in model.standard_deviations().items():
        posterior = torch.distributions.Normal(model.module.get_parameter(name).detach().double(), std.double())
        total += torch.distributions.kl_divergence(posterior, prior).sum()
    return total


def small(data, count=64):
    some = torch.arange(count)
    return TrainingData(
        data.train.subset(some), data.validation.subset(some), uncertainty=data.uncertainty.subset(some)
    )


FAST = ("fit.epochs=2", "finetune.epochs=2", "backbone.name=mlp-8", "posterior.members=2")


@pytest.mark.parametrize(
    "overrides",
    [
        ("calibration.share=0.25",),
        ("posterior.draws=3",),
        ("engine.precision=bf16-mixed",),
        ("fit.clip_norm=0.01", "fit.weight_decay=0.001", "fit.nesterov=true"),
        ("fit.optimizer=adam", "fit.rho_rate=0.5", "fit.schedule=cosine"),
        ("calibration.regularizer=focal", "calibration.replaces_cross_entropy=true"),
        ("data.normalize=false", "fit.validate_every=0"),
    ],
)
def test_every_option_of_the_stages_changes_the_result(data, tmp_path, overrides):
    plain = Workspace(small(data), load_settings("embedded", overrides=FAST), tmp_path).model("CBNN-OCM")
    changed = Workspace(small(data), load_settings("embedded", overrides=(*FAST, *overrides)), tmp_path)
    assert any(not torch.equal(a, b) for a, b in zip(plain.parameters(), changed.model("CBNN-OCM").parameters()))
    assert (changed.stage("CBNN-OCM").path / "metrics.csv").exists()


def test_the_published_codes_seven_inputs_reach_the_selector_and_what_is_deployed(data, tmp_path):
    published = load_settings("paper-code").outliers.model_dump(mode="json")
    overrides = (*FAST, *(f"outliers.{name}={value}" for name, value in published.items()), "selector.entropy=true")
    settings = load_settings("embedded", overrides=(*overrides, "outliers.max_points=64", "selector.steps=20"))
    workspace = Workspace(small(data), settings, tmp_path)
    selection = workspace.selection("SBNN")
    assert selection.selector.network.standard.mean.shape == (7,)
    predictor_of(workspace, "SBNN", selection).save(tmp_path / "predictor")
    decision = load(tmp_path / "predictor")(workspace.data.validation.inputs)
    expected = selection.predictions["validation"]
    assert tuple(decision.scores) == ("neighbors", "density", "svm", "forest", "lof")
    torch.testing.assert_close(
        decision.predictions.columns(), expected.columns(tuple(decision.scores)), atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(decision.acceptance, expected.selection, atol=1e-4, rtol=1e-4)
    without = Workspace(small(data), settings.with_("selector.entropy=false"), tmp_path).selection("SBNN")
    assert not torch.allclose(without.predictions["validation"].selection, expected.selection, atol=1e-3)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(data, tmp_path):
    settings = load_settings("embedded", overrides=FAST)
    before = torch.get_rng_state()
    runs = [
        Workspace(small(data), settings.with_(f"seed={seed}"), tmp_path / name)
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    ]
    files = [(run._trained(Scheme.parse("BNN-OCM")).path / "model.safetensors").read_bytes() for run in runs]
    assert files[0] == files[1] != files[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_missing_uncertainty_and_class_counts_are_refused_before_anything_runs(data, tmp_path):
    settings = load_settings("embedded", overrides=FAST)
    bare = TrainingData(data.train, data.validation)
    with pytest.raises(ValueError, match=r"D_u.*is missing: CBNN-OCM needs"):
        Workspace(bare, settings, tmp_path).train("FNN", "CBNN-OCM")
    assert not (tmp_path / "stages").exists()
    with pytest.raises(ValueError, match="3 outputs, but the training data has 10 classes"):
        Workspace(bare, settings, tmp_path, network=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3)))
    with pytest.raises(ValueError, match="logits of shape"):
        Workspace(bare, settings, tmp_path, network=torch.nn.Conv2d(1, 1, 3))
    with pytest.raises(ValueError, match=r"uncertainty has inputs of shape \(3,\)"):
        TrainingData(data.train, data.validation, uncertainty=ArrayData(torch.zeros(5, 3)))
    with pytest.raises(ValueError, match=r"regularizer esd has no option"):
        Workspace(bare, settings.with_("calibration.regularizer=esd", "calibration.options.width=1"), tmp_path).model(
            "CFNN"
        )


def test_a_damaged_model_is_named_and_a_deleted_stage_is_made_again(data, tmp_path):
    workspace = Workspace(small(data), load_settings("embedded", overrides=FAST), tmp_path)
    before = workspace.model("FNN").state_dict()
    stage = workspace.stage("FNN")
    (stage.path / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(RunError, match=r"model\.safetensors was cut short or altered"):
        workspace.model("FNN")
    shutil.rmtree(stage.path)
    assert all(torch.equal(value, before[name]) for name, value in workspace.model("FNN").state_dict().items())


def test_metrics_have_a_row_an_epoch(trained):
    rows = trained[0].history("CBNN-OCM")
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    wanted = {
        "rate",
        "train_loss",
        "train_cross_entropy",
        "train_kl",
        "train_calibration",
        "train_ocm",
        "train_accuracy",
    }
    assert wanted | {"validation_accuracy", "validation_ece"} <= set(rows[0])


def test_tensorboard_is_written_on_request(data, tmp_path):
    settings = load_settings("embedded", overrides=(*FAST, "engine.tensorboard=true"))
    workspace = Workspace(small(data), settings, tmp_path)
    workspace.model("FNN")
    assert list(workspace.stage("FNN").path.rglob("events.out.tfevents*"))


def test_ood_sets_keep_the_order_of_the_data(data, tmp_path):
    settings = load_settings("embedded", overrides=FAST)
    some = torch.arange(64)
    sets = {name: part.subset(some) for name, part in data.ood.items()}
    few = replace(small(data), ood=sets)
    turned = replace(few, ood=dict(reversed(sets.items())))
    assert len(sets) == 2
    for given in (few, turned):
        assert list(Workspace(given, settings, tmp_path).predictions("FNN"))[-2:] == list(given.ood)
