"""Every family of posteriors trains through the same stages, ours and those from outside."""

from __future__ import annotations

import copy
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from calibrant import CalibratedClassifier, slots
from calibrant.config.dependence import identity
from calibrant.config.loading import load_settings
from calibrant.config.schemes import Scheme
from calibrant.deploy import load
from calibrant.deploy.deploying import predictor_of
from calibrant.posteriors import (
    IVON,
    SWAG,
    DeepEnsemble,
    Ensemble,
    EpochEnd,
    Laplace,
    MeanField,
    Posterior,
    TrainingContext,
)
from calibrant.training import TrainingData, Workspace, open_data
from calibrant.training.passes import training_part

sys.path.insert(0, str(Path(__file__).parent))
import test_resume as resume

FAST = (
    "fit.epochs=2",
    "finetune.epochs=2",
    "fit.batch_size=16",
    "backbone.name=mlp-8",
    "posterior.members=3",
    "outliers.trees=10",
    "outliers.max_points=64",
    "selector.steps=20",
)
SWAG_RUN = ("posterior.family=swag", "posterior.options.rank=3", "backbone.name=cnn-2")
LAPLACE_RUN = ("posterior.family=laplace",)
DROPOUT = ("posterior.family=mc_dropout", "posterior.options.rate=0.25")
FAMILIES = {
    "mc_dropout": DROPOUT,
    "swag": SWAG_RUN,
    "laplace": LAPLACE_RUN,
    "ivon": ("posterior.family=ivon",),
    "deep_ensemble": ("posterior.family=deep_ensemble", "posterior.options.size=3"),
}
every_family = pytest.mark.parametrize("family", sorted(FAMILIES))


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    for name in slots.names("posterior"):
        slots.registration("posterior", name)
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))


@pytest.fixture(scope="module")
def data() -> TrainingData:
    data, some = open_data(load_settings("embedded").data, seed=0), torch.arange(64)
    assert data.uncertainty is not None
    return TrainingData(
        data.train.subset(some), data.validation.subset(some), uncertainty=data.uncertainty.subset(some)
    )


def workspace(data: TrainingData, out: Path | None, *overrides: str, network: nn.Module | None = None) -> Workspace:
    return Workspace(data, load_settings("embedded", overrides=(*FAST, *overrides)), out, network=network)


@every_family
def test_a_family_in_all_kinds_of_bayesian_schemes(family: str, data: TrainingData, tmp_path: Path) -> None:
    space = workspace(data, tmp_path, *FAMILIES[family])
    found = space.train("BNN", "CBNN-OCM", "SCBNN-OCM")
    assert type(space.model("BNN")) is slots.lookup("posterior", family)
    assert all(not name.startswith("train_kl") for name in space.history("CBNN-OCM")[0])
    ensemble = space.ensemble("CBNN-OCM")
    assert len(ensemble) == 3
    inputs = data.validation.take(torch.arange(64))[0]
    with torch.no_grad():
        logits = ensemble(inputs)
    assert not torch.equal(logits[0], logits[1])
    torch.testing.assert_close(found["CBNN-OCM"]["validation"].probabilities, logits.softmax(-1).mean(0))
    predictor = predictor_of(space, "SCBNN-OCM", space.selection("SCBNN-OCM"))
    decision = predictor(inputs)
    again = load(predictor.save(tmp_path / "predictor"))(inputs)
    assert torch.equal(again.probabilities, decision.probabilities)
    assert torch.equal(again.accepted, decision.accepted)
    torch.testing.assert_close(decision.acceptance, found["SCBNN-OCM"]["validation"].selection, rtol=1e-3, atol=1e-3)
    if family != "mc_dropout":  # whose export is tested beside it
        plain = predictor_of(space, "BNN", space.selection("BNN"))
        plain.export(tmp_path / "predictor.pt2", inputs)
        program = torch.export.load(tmp_path / "predictor.pt2").module()
        torch.testing.assert_close(program(inputs)[2], plain(inputs).probabilities)


def test_keys_count_the_family_and_its_options_unless_they_are_the_default(data: TrainingData) -> None:
    plain, dropped = workspace(data, None), workspace(data, None, *DROPOUT)
    assert "family" not in identity(plain.settings)["posterior"]
    assert "options" not in identity(plain.settings)["posterior"]
    assert plain.with_settings("posterior.family=mean_field").stage("BNN").key == plain.stage("BNN").key
    keys = {plain.stage("BNN").key, dropped.stage("BNN").key, workspace(data, None, DROPOUT[0]).stage("BNN").key}
    assert len(keys) == 3
    assert plain.stage("CFNN-OCM").key == dropped.stage("CFNN-OCM").key
    assert plain.stage("CBNN-OCM").key != dropped.stage("CBNN-OCM").key


def test_settings_of_the_posterior_go_to_the_families_that_have_them(data: TrainingData) -> None:
    space = workspace(data, None, "posterior.prior_std=0.5", "posterior.init_std=0.2")
    model = space._fresh(Scheme.parse("BNN"))
    assert isinstance(model, MeanField)
    assert (model.prior_std, model.init_std) == (0.5, 0.2)
    own = space.with_settings("posterior.options.init_std=0.1", "posterior.options.prior_mean=init")
    model = own._fresh(Scheme.parse("BNN"))
    assert (model.init_std, model.prior_mean) == (0.1, "init")
    with pytest.raises(ValueError, match=r"there is no posterior 'mc_dropuot'; did you mean mc_dropout\?"):
        space.with_settings("posterior.family=mc_dropuot")
    with pytest.raises(ValueError, match="posterior mc_dropout has no option 'p'; it has rate, before_last"):
        space.with_settings("posterior.family=mc_dropout", "posterior.options.p=0.1").model("BNN")


def test_a_deterministic_family_trains_the_network_itself(data: TrainingData) -> None:
    space = workspace(data, None, "posterior.family=deterministic")
    assert len(space.ensemble("BNN")) == 1
    assert space.predictions("BNN")["validation"].probabilities.shape == (64, 10)


def test_a_networks_own_dropout_layers_are_used(data: TrainingData) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 10))
    space = workspace(data, None, DROPOUT[0], network=network)
    assert space.ensemble("BNN").members.names == ["module.3.mask"]
    assert space.ensemble("FNN").members.names == []


def test_killed_in_both_stages_mc_dropout_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole = resume.final(resume.workspace(tmp_path / "whole", "engine.checkpoint_steps=null", *DROPOUT))
    resume.kill_within(tmp_path / "parts", "fit-CBNN", 2, *DROPOUT)
    resume.kill_within(tmp_path / "parts", "fine-tune-CBNN-OCM", 3, *DROPOUT)
    assert resume.final(resume.workspace(tmp_path / "parts", *DROPOUT)) == whole


@pytest.mark.parametrize("overrides", [SWAG_RUN, LAPLACE_RUN])
def test_stopped_while_collecting_and_while_finishing_the_result_has_the_same_bytes(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    def crash(*_: object) -> None:
        raise resume.CrashError

    overrides = (*overrides, "engine.checkpoint_steps=1", "finetune.batch_size=16")
    whole = resume.final(workspace(data, tmp_path / "whole", *overrides))
    for steps in (3, 3, 5):  # of eight in each stage; the last one is in the second
        with monkeypatch.context() as patched:
            resume.stop_after(patched, steps, crash)
            with pytest.raises(resume.CrashError):
                workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM")
    with monkeypatch.context() as patched:
        patched.setattr(Posterior, "finish", crash)
        patched.setattr(Laplace, "finish", crash)
        with pytest.raises(resume.CrashError):
            workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM")
    assert resume.final(workspace(data, tmp_path / "parts", *overrides)) == whole


def test_swag_collects_anew_when_fine_tuning_and_its_members_have_their_own_statistics(data: TrainingData) -> None:
    space = workspace(data, None, *SWAG_RUN, "posterior.options.iterates=3", "finetune.batch_size=16")
    fitted, tuned = space.model("BNN"), space.model("BNN-OCM")
    assert isinstance(fitted, SWAG)
    assert isinstance(tuned, SWAG)
    assert fitted.progress.tolist() == [8, 8, 3]
    assert tuned.progress.tolist() == [8, 8, 3]
    assert not torch.equal(fitted.mean, tuned.mean)
    stacked = space.ensemble("BNN-OCM").stacked()
    statistics = [name for name in stacked if name.endswith("running_mean")]
    assert statistics
    assert not torch.equal(stacked[statistics[-1]][0], stacked[statistics[-1]][1])
    again = space.ensemble("BNN-OCM").stacked()
    assert all(torch.equal(value, again[name]) for name, value in stacked.items())
    assert space.history("BNN")[-1]["validation_accuracy"] > 0
    assert space.validation("BNN-OCM")["accuracy"] > 0


def test_laplace_is_fitted_to_all_training_data_after_the_last_epoch_or_without_any(
    data: TrainingData,
) -> None:
    space = workspace(data, None, *LAPLACE_RUN, "calibration.share=0.25", "augmentation.padding=2")
    fitted, tuned = space.model("CBNN"), space.model("CBNN-OCM")
    for model in (fitted, tuned):
        assert isinstance(model, Laplace)
        again = copy.deepcopy(model)
        again.std.zero_()
        train, rest = training_part(space.data, Scheme.parse("CBNN"), space.settings)
        assert (len(train), 0 if rest is None else len(rest)) == (48, 16)
        again.finish([train.take(torch.arange(48))])
        torch.testing.assert_close(again.std, model.std)
    assert not torch.equal(fitted.std, tuned.std)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    model = workspace(data, None, *LAPLACE_RUN, "fit.epochs=0", network=network).model("BNN")
    assert isinstance(model, Laplace)
    assert float(model.std.min()) > 0
    assert torch.equal(model.module.module[1].weight, network[1].weight)


@pytest.mark.parametrize("family", ["deep_ensemble", "ivon"])
@pytest.mark.parametrize("steps", [3, 10])
def test_interrupted_in_either_stage_a_family_ends_with_the_same_bytes(
    family: str, steps: int, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    overrides = (*FAMILIES[family], "engine.checkpoint_steps=1", "fit.clip_norm=1", "backbone.name=cnn-2")

    def stop() -> None:
        raise resume.CrashError

    whole = workspace(data, tmp_path / "whole", *overrides).model("CBNN-OCM").state_dict()
    with monkeypatch.context() as patched:
        resume.stop_after(patched, steps, stop)
        with pytest.raises(resume.CrashError):
            workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM")
    assert list((tmp_path / "parts").rglob("checkpoint-*"))
    resumed = workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM").state_dict()
    assert all(torch.equal(value, whole[name]) for name, value in resumed.items())


def test_every_network_of_a_deep_ensemble_starts_as_an_ordinary_one_and_the_first_is_trained_as_one(
    data: TrainingData,
) -> None:
    space = workspace(data, None, *FAMILIES["deep_ensemble"])
    fresh = space._fresh(Scheme.parse("BNN"))
    assert isinstance(fresh, DeepEnsemble)
    for k, network in enumerate(fresh.networks()):
        alone = space.with_settings(f"seed={k}")._fresh(Scheme.parse("FNN")).state_dict()
        assert all(torch.equal(value, alone[name]) for name, value in network.state_dict().items())
    first, ordinary = space.model("BNN").networks()[0].state_dict(), space.model("FNN").state_dict()
    for name, value in ordinary.items():
        torch.testing.assert_close(first[name], value, rtol=1e-4, atol=1e-5)


def test_a_deep_ensemble_of_a_trained_network_starts_near_it(data: TrainingData) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    space = workspace(data, None, *FAMILIES["deep_ensemble"], "fit.epochs=0", network=network)
    weights = [one.module[1].weight.detach() for one in space.model("BNN").networks()]
    assert torch.equal(weights[0], network[1].weight)
    assert 0 < float((weights[1] - weights[0]).std()) < 0.2 * float(weights[0].std())
    other = space.with_settings("fit.epochs=1")._fresh(Scheme.parse("BNN"))
    assert float((other.networks()[1].module[1].weight.detach() - weights[0]).std()) > float(weights[0].std())


def test_the_sample_size_of_ivon_is_that_of_the_training_data_whatever_the_kl_term_is_divided_by(
    data: TrainingData, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, build = list[float](), IVON.optimizer

    def noted(posterior: IVON, context: TrainingContext) -> torch.optim.Optimizer:
        optimizer = build(posterior, context)
        sizes.append(optimizer.param_groups[0]["ess"])
        return optimizer

    monkeypatch.setattr(IVON, "optimizer", noted)
    workspace(data, None, *FAMILIES["ivon"], "finetune.kl_examples=9", "finetune.epochs=1").model("BNN-OCM")
    assert sizes == [64, 64]


class Snapshots(Posterior):
    """From outside: averages its weights after every step, counts epochs, steps by an optimizer of its own."""

    average: Tensor
    steps: Tensor

    def __init__(self, module: nn.Module, *, spread: float = 0.01, rate: float = 0.05) -> None:
        super().__init__(module)
        self.spread, self.rate = spread, rate
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("average", torch.zeros(sum(p.numel() for p in module.parameters())))

    def kl(self) -> Tensor:
        return sum(p.square().sum() for p in self.module.parameters())  # type: ignore[return-value]

    def optimizer(self, context: TrainingContext) -> torch.optim.Optimizer:
        assert context.num_data == 64
        return torch.optim.RMSprop(self.module.parameters(), lr=self.rate, momentum=0.5)

    @torch.no_grad()
    def after_step(self) -> None:
        self.steps += 1
        self.average += (nn.utils.parameters_to_vector(self.module.parameters()) - self.average) / self.steps

    @torch.no_grad()
    def after_epoch(self, end: EpochEnd) -> None:
        assert 1 <= end.epoch <= end.epochs
        self.get_buffer("seen").copy_(torch.tensor([end.epoch, sum(len(labels) for _, labels in end.batches())]))

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        networks = [MeanField(self.module, init_std=self.spread).sample(n, seed).member(k) for k in range(n)]
        return Ensemble.separate(networks)


@pytest.mark.usefixtures("clean")
def test_a_family_from_outside_trains_resumes_and_is_deployed(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots.register("posterior", "snapshots", version="1")(Snapshots)
    overrides = ("posterior.family=snapshots", "posterior.options.spread=0.05", "engine.checkpoint_steps=1")
    space = workspace(data, tmp_path / "whole", *overrides)
    assert identity(space.settings)["posterior"]["family"] == "snapshots@1"
    found = space.train("CBNN-OCM", "SBNN")
    assert found["CBNN-OCM"]["validation"].probabilities.shape == (64, 10)
    model = space.model("CBNN-OCM")
    assert isinstance(model, Snapshots)
    assert (model.spread, model.rate) == (0.05, 0.05)
    assert model.get_buffer("seen").tolist() == [2.0, 64.0]
    assert space.model("CBNN").steps == 2 * 4
    assert space.history("CBNN")[-1]["train_kl"] > 0
    inputs = data.validation.take(torch.arange(64))[0]
    torch.testing.assert_close(
        predictor_of(space, "SBNN", space.selection("SBNN"))(inputs).probabilities,
        found["SBNN"]["validation"].probabilities,
    )

    def crash() -> None:
        raise resume.CrashError

    with monkeypatch.context() as patched:
        resume.stop_after(patched, 6, crash)
        with pytest.raises(resume.CrashError):
            workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM")
    resumed = workspace(data, tmp_path / "parts", *overrides).model("CBNN-OCM")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in resumed.state_dict().items())


@pytest.mark.usefixtures("clean")
def test_the_family_in_the_documentation_trains_as_written(data: TrainingData) -> None:
    text = (Path(__file__).parents[2] / "docs" / "posterior.md").read_text("utf-8")
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "calibrant.register" in block)
    exec(compile(code, "posterior.md", "exec"), {})
    space = workspace(data, None, "posterior.family=averaged", "posterior.options.spread=0.02", "backbone.name=cnn-4")
    model, ensemble = space.model("CBNN-OCM"), space.ensemble("CBNN-OCM")
    assert len(ensemble) == 3
    assert model.spread == 0.02
    assert not torch.equal(model.average.module.head.weight, model.module.module.head.weight)


@every_family
def test_a_network_that_is_left_as_it_is_becomes_an_ensemble(family: str) -> None:
    X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    classifier = CalibratedClassifier(network, "BNN", posterior=family, members=4, overrides=["fit.epochs=0"])
    ensemble = classifier.fit(X, X[:, 0] > 0).predictor_.ensemble
    with torch.no_grad():
        logits = ensemble(X)
    assert torch.equal(logits[0], logits[1]) == (family == "swag"), "which has no spread before its first iterate"


@pytest.mark.parametrize(
    ("family", "drawn", "epochs"),
    [("mc_dropout", "module.2.dropout.mask", 5), ("swag", "module.0.weight", 20), ("laplace", "module.2.weight", 20)],
)
def test_the_estimator_takes_a_family(family: str, drawn: str, epochs: int) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(200, 2, generator=generator)
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    y = X[:, 0] > 0
    classifier = CalibratedClassifier(network, "BNN", posterior=family, members=5, epochs=epochs).fit(X, y)
    assert classifier.get_params()["posterior"] == family
    assert classifier.predictor_.ensemble.members.names[0] == drawn
    assert classifier.score(X, y) > 0.9
    for family, members in (("ivon", 7), ("deep_ensemble", 5)):
        classifier = CalibratedClassifier(network, "BNN", posterior=family, members=7, epochs=5).fit(X, y)
        assert len(classifier.predictor_.ensemble) == members
        assert classifier.score(X, y) > 0.9
