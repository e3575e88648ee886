"""The rule stage: trust or SIRC for schemes without a selector, fitted and certified on parts that do not meet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import TINY, TINY_OPTIONS, Caller, call, read_rows
from torch import Tensor, nn

from calibrant.config.loading import Settings, load_settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.deploy import load
from calibrant.deploy.deploying import predictor_of
from calibrant.deploy.saving import describe
from calibrant.evaluation.summary import Resampling, summarize
from calibrant.evaluation.systems import Evaluation
from calibrant.metrics.outlier_stream import stream_calibration_error
from calibrant.predictions import Predictions
from calibrant.selective import SIRC, Selector, Trust
from calibrant.training import TrainingData, Workspace, open_data, ruling
from calibrant.training.ruling import certifying_part, check_rule, fitting_part, rule_outliers

__all__ = ["call"]
RULE = ("calibrator.name=temperature", "rule.name=trust")
CERTIFICATE = ("rule.max_error=0.5", "rule.max_outliers=0.5")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    settings = load_settings("embedded", overrides=TINY)
    data = open_data(settings.data, settings.seed)
    return Workspace(data, settings, tmp_path_factory.mktemp("run"), progress=False)


@pytest.fixture(scope="module")
def trusting(plain: Workspace) -> Workspace:
    return plain.with_settings(*RULE)


def stages(workspace: Workspace) -> set[str]:
    return {folder.name for folder in (workspace.run.root / "stages").iterdir()}


def on(workspace: Workspace, data: TrainingData, *overrides: str, network: nn.Module | None = None) -> Workspace:
    """The settings of `workspace` on other data, in memory."""
    return Workspace(data, workspace.settings.with_(*overrides), network=network, progress=False)


def by_hand(trust: Trust, predictions: Predictions) -> Tensor:
    """c (1 - pi) / ((1 - pi) + pi ratio), in float64."""
    ratio = trust.log_ratio(predictions.columns(trust.names)).double().exp()
    pi = trust.share
    return predictions.confidence.double() * (1 - pi) / ((1 - pi) + pi * ratio)


def test_trained_stages_stay_valid_and_a_second_run_reuses_the_rule(
    plain: Workspace, trusting: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.train("FNN")
    before = stages(plain)
    first = trusting.selection("FNN")
    made = sorted(name.rpartition("-")[0] for name in stages(plain) - before)
    assert made == ["calibrate-FNN", "rule-FNN", "score-FNN"]
    monkeypatch.setattr(ruling, "fit_rule", None)
    second = trusting.selection("FNN")
    assert isinstance(first.selector, Trust)
    assert second.selector.config() == first.selector.config()
    for name, value in first.selector.state_dict().items():
        assert torch.equal(value, second.selector.state_dict()[name])
    for name, part in first.predictions.items():
        torch.testing.assert_close(part.trust.double(), by_hand(first.selector, part), atol=1e-6, rtol=1e-4)
        assert torch.equal(part.trust, part.acceptance)
        assert torch.equal(part.trust, second.predictions[name].trust)


def test_the_kept_rule_is_the_one_fitted_to_four_fifths_of_the_validation_data(trusting: Workspace) -> None:
    selection, settings = trusting.selection("FNN"), trusting.settings
    validation = selection.predictions["validation"]
    outliers = rule_outliers(trusting.data, settings)
    said = ruling.predict_outliers(
        trusting.ensemble("FNN"), selection.scorer, selection.calibrator, outliers.fitting, settings=settings
    )
    part = validation[fitting_part(settings, len(validation))]
    fitted = Trust(0.1, seed=settings.seed).fit(part, said, ("knn", "energy", "gen"))
    assert fitted.names == selection.selector.names
    assert len(selection.selector.gates) == 80
    torch.testing.assert_close(fitted.gates, selection.selector.gates, atol=1e-5, rtol=1e-4)
    assert selection.calibrator is not None
    raw = trusting.with_settings("rule.name=confidence", "calibrator.name=none").predictions("FNN")["validation"]
    refitted = type(selection.calibrator)().fit(raw.probabilities.log()[fitting_part(settings, 100)], part.labels)
    assert float(refitted.temperature_) == pytest.approx(float(selection.calibrator.temperature_), rel=1e-3)


@pytest.mark.parametrize("count", [20, 99, 100, 5000])
@pytest.mark.parametrize("certificate", [False, True])
def test_the_parts_of_the_validation_data_are_disjoint(count: int, certificate: bool) -> None:
    settings = Settings().with_("rule.name=trust", *(CERTIFICATE if certificate else ()))
    fitting, certifying = fitting_part(settings, count), certifying_part(settings, count)
    assert sorted(torch.cat([fitting, certifying]).tolist()) == list(range(count))
    assert len(fitting) == (count if count < 100 and not certificate else int(0.8 * count))
    other = settings.with_("seed=1")
    assert not torch.equal(fitting_part(other, count), fitting)


@pytest.mark.parametrize(("count", "fitting", "certifying"), [(20, 20, 0), (30, 20, 10), (300, 150, 150), (6000,) * 3])
def test_the_parts_of_the_outliers_are_disjoint(plain: Workspace, count: int, fitting: int, certifying: int) -> None:
    numbered = ArrayData(torch.arange(count).float()[:, None, None, None].expand(-1, 1, 8, 8).contiguous())
    data = TrainingData(plain.data.train, plain.data.validation, uncertainty=numbered)
    parts = rule_outliers(data, plain.settings.with_(*RULE, *CERTIFICATE))
    assert parts.fitting is not None
    first = set(parts.fitting.inputs[:, 0, 0, 0].tolist())
    second = set() if parts.certifying is None else set(parts.certifying.inputs[:, 0, 0, 0].tolist())
    assert not first & second
    assert (len(first), len(second)) == (min(fitting, 1000), min(certifying, 1000))
    without = rule_outliers(data, plain.settings.with_(*RULE))
    assert without.fitting.fingerprint == parts.fitting.fingerprint
    assert without.certifying is None


def test_a_run_that_was_stopped_before_the_rule_resumes_to_the_same_bytes(
    plain: Workspace, trusting: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    workspace = Workspace(plain.data, trusting.settings, tmp_path, progress=False)
    with monkeypatch.context() as patched:
        patched.setattr(ruling, "fit_rule", stop)
        with pytest.raises(KeyboardInterrupt):
            workspace.selection("FNN")
    assert sorted(name.rpartition("-")[0] for name in stages(workspace) if "rule" not in name) == [
        "calibrate-FNN",
        "fit-FNN",
        "predict-FNN",
        "score-FNN",
    ]
    workspace.selection("FNN")
    trusting.selection("FNN")
    (resumed,) = workspace.run.root.glob("stages/rule-FNN-*/rule.safetensors")
    whole = trusting.run.root / "stages" / resumed.parent.name / resumed.name
    assert resumed.read_bytes() == whole.read_bytes()


def test_without_outliers_synthetic_ones_fit_it(trusting: Workspace) -> None:
    data = replace(trusting.data, uncertainty=None)
    outliers = rule_outliers(data, trusting.settings.with_(*CERTIFICATE))
    assert outliers.population == "synthetic outliers"
    assert (len(outliers.fitting), len(outliers.certifying)) == (80, 20)
    again = rule_outliers(data, trusting.settings)
    assert torch.equal(again.fitting.inputs, outliers.fitting.inputs)
    assert not torch.equal(again.fitting.inputs, data.validation.inputs[fitting_part(trusting.settings, 100)])
    selection = on(trusting, data).selection("FNN")
    assert isinstance(selection.selector, Trust)
    assert selection.predictions["test"].trust is not None


class Signal(nn.Module):
    """Over a signal (B, 2, 6), from which no outliers can be made."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(12, 2)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits


def test_where_no_outliers_can_be_made_the_rule_is_sirc(trusting: Workspace) -> None:
    x = torch.randn(200, 2, 6, generator=torch.Generator().manual_seed(0))
    whole = ArrayData(x, (x.sum((1, 2)) > 0).long())
    data = TrainingData(whole.subset(range(100)), whole.subset(range(100, 200)))
    overrides = ("augmentation.padding=0", "augmentation.flip=false")
    workspace = on(trusting, data, *overrides, network=Signal())
    with pytest.warns(UserWarning, match=r"no outliers can be made .*: the rule is SIRC, whose output is no prob"):
        selection = workspace.selection("FNN")
    assert isinstance(selection.selector, SIRC)
    decision = predictor_of(workspace, "FNN", selection)(x[:5])
    assert decision.trust is None
    assert selection.selector.threshold(0.9).value == pytest.approx(decision.threshold)
    asked = on(trusting, data, *overrides, "rule.synthesizers=[patch_shuffle]", network=Signal())
    with pytest.raises(ValueError, match="patch_shuffle cannot make outliers from these inputs"):
        asked.selection("FNN")


def test_sirc_by_name_uses_no_outliers_to_fit(trusting: Workspace) -> None:
    selection = trusting.with_settings("rule.name=sirc").selection("FNN")
    assert isinstance(selection.selector, SIRC)
    assert selection.selector.names == ("knn",)
    assert selection.predictions["test"].trust is None
    assert rule_outliers(trusting.data, trusting.settings.with_("rule.name=sirc")).fitting is None
    certified = trusting.with_settings("rule.name=sirc", *CERTIFICATE).selection("FNN").certificate
    assert certified is not None
    assert certified.outliers_total > 20


def test_schemes_with_ocm_are_refused_before_training(
    trusting: Workspace, plain: Workspace, call: Caller, tmp_path: Path
) -> None:
    before = stages(plain)
    message = "rule.name=trust is for schemes without OCM: .*; train FNN"
    for refused in (trusting.selection, trusting.train):
        with pytest.raises(ValueError, match=message):
            refused("FNN-OCM")
    assert stages(plain) == before
    out = tmp_path / "run"
    options = (*TINY_OPTIONS, "-s", "FNN-OCM", "--rule", "trust")
    assert "for schemes without OCM" in call.refused("train", *options, "--out", out)
    assert not (out / "stages").exists()


@pytest.mark.parametrize("scheme", ["SFNN", "SFNN-OCM"])
def test_a_selective_scheme_has_the_selector_of_the_paper_whatever_the_rule_is(
    plain: Workspace, trusting: Workspace, scheme: str
) -> None:
    expected = plain.with_settings("calibrator.name=temperature").selection(scheme)
    before = stages(plain)
    selection = trusting.selection(scheme)
    assert stages(plain) == before
    assert isinstance(selection.selector, Selector)
    assert torch.equal(selection.predictions["test"].acceptance, expected.predictions["test"].acceptance)
    check_rule(trusting.settings, Scheme.parse(scheme), plain.data)


def test_share_error_and_coverage(trusting: Workspace) -> None:
    default = trusting.selection("FNN").selector
    assert (default.share, float(default.tau)) == (0.1, pytest.approx(0.9))
    changed = trusting.with_settings("rule.share=0.5", "rule.error=0.3").selection("FNN").selector
    assert (changed.share, float(changed.tau)) == (0.5, pytest.approx(0.7))
    torch.testing.assert_close(changed.gates, default.with_share(0.5).gates)
    covered = trusting.with_settings("rule.coverage=0.6", "rule.error=0.3").selection("FNN").selector
    assert float((covered.gates >= covered.tau).double().mean()) == pytest.approx(0.6, abs=0.02)
    alone = trusting.with_settings("rule.detectors=[energy]").selection("FNN").selector
    assert set(alone.names) <= {"energy"}


def test_options_of_scores_that_the_rule_does_not_read_do_no_harm(trusting: Workspace) -> None:
    options = {"outliers": {"options": {"forest": {"trees": 3}, "svm": {}}}}
    workspace = on(trusting, trusting.data)
    workspace.settings = workspace.settings.changed(options)
    assert ruling.reading_rule(workspace.settings, nn.Linear(2, 2)).outliers.options == {}


class Pooled(nn.Module):
    """A convolution and a mean: no linear layer whose input could be the features."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convolution = nn.Conv2d(1, 10, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.convolution(x).mean((2, 3))
        return logits


def test_a_network_without_a_linear_layer_is_read_by_its_logits(trusting: Workspace) -> None:
    workspace = on(trusting, trusting.data, network=Pooled())
    selection = workspace.selection("FNN")
    assert selection.scorer is not None
    assert selection.scorer.scores == ("energy", "gen")
    assert predictor_of(workspace, "FNN", selection)(trusting.data.test.inputs[:4]).trust is not None
    with pytest.raises(ValueError, match=r"rule\.detectors all read features, but the network has no linear layer"):
        on(trusting, trusting.data, "rule.detectors=[knn]", network=Pooled()).selection("FNN")


def test_a_certificate_comes_from_data_held_out_and_goes_with_the_predictor(
    trusting: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = trusting.with_settings(*CERTIFICATE)
    seen = {}
    own = Trust.certify

    def certify(self: Trust, *parts: Any, **wanted: Any) -> Any:
        seen["parts"] = parts
        return own(self, *parts, **wanted)

    monkeypatch.setattr(Trust, "certify", certify)
    selection = workspace.selection("FNN")
    certificate, held_out = selection.certificate, selection.predictions["validation"]
    part = held_out[certifying_part(workspace.settings, len(held_out))]
    confidence, scores, correct, _, theirs = seen["parts"]
    assert torch.equal(confidence, part.confidence)
    assert torch.equal(scores, part.columns(selection.selector.names))
    assert torch.equal(correct, part.correct)
    assert len(theirs) == len(rule_outliers(workspace.data, workspace.settings).certifying)
    assert certificate
    assert (certificate.total, certificate.outliers_total) == (20, len(theirs))
    predictor = load(predictor_of(workspace, "FNN", selection).save(tmp_path / "folder"))
    assert predictor.certificate == certificate
    assert predictor.threshold == certificate.threshold
    assert describe(tmp_path / "folder")["certificate"] == certificate.sentence()
    for other in (predictor.at_coverage(0.5), predictor.at_error(0.2), predictor.at_share(0.3)):
        assert other.certificate is None
    with pytest.raises(ValueError, match="threshold must be the certified one"):
        type(predictor)(
            predictor.ensemble,
            calibrator=predictor.calibrator,
            outliers=predictor.outliers,
            selector=predictor.selector,
            certificate=certificate,
            threshold=0.123,
        )


def test_where_nothing_can_be_certified_the_threshold_is_that_of_the_error(trusting: Workspace, tmp_path: Path) -> None:
    workspace = trusting.with_settings("rule.max_error=0.001", "rule.max_outliers=0.001", "rule.error=0.2")
    selection = workspace.selection("FNN")
    assert selection.certificate is not None
    assert not selection.certificate
    predictor = load(predictor_of(workspace, "FNN", selection).save(tmp_path / "folder"))
    assert predictor.threshold == pytest.approx(0.8)
    assert describe(tmp_path / "folder")["certificate"].startswith("No threshold could be certified from 20 in-dist")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("rule.max_error=0.1",), "both rule.max_error and rule.max_outliers"),
        (("rule.min_coverage=0.5",), "rule.min_coverage is part of a certificate"),
        (("rule.name=confidence", *CERTIFICATE), "needs rule.name=trust or rule.name=sirc"),
    ],
)
def test_half_a_certificate_is_refused(trusting: Workspace, overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trusting.with_settings(*overrides).selection("FNN")


def test_too_little_data(trusting: Workspace) -> None:
    data = trusting.data
    few = replace(data, uncertainty=data.uncertainty.subset(range(3)))
    with pytest.raises(ValueError, match="3 outliers are too few to fit trust to: give about 20, or none at all"):
        on(trusting, few).selection("FNN")
    twenty = replace(data, uncertainty=data.uncertainty.subset(range(20)))
    with pytest.raises(ValueError, match=r"rule\.max_error needs more than 20 outliers"):
        on(trusting, twenty, *CERTIFICATE).selection("FNN")
    assert isinstance(on(trusting, twenty).selection("FNN").selector, Trust)
    short = replace(data, validation=data.validation.subset(range(19)))
    with pytest.warns(UserWarning, match="19 validation examples are too few to fit trust to: about 20 are needed"):
        selection = on(trusting, short).selection("FNN")
    assert selection.predictions["test"].trust is None
    assert selection.threshold == -float("inf")
    with pytest.raises(ValueError, match=r"rule\.max_error needs more validation data: 15 examples are too few"):
        on(trusting, short, *CERTIFICATE).selection("FNN")


def test_an_evaluation_keeps_the_trust(trusting: Workspace, plain: Workspace, tmp_path: Path) -> None:
    made = Evaluation.of("FNN", 0, trusting.predictions("FNN"))
    made.save(tmp_path / "new.npz")
    read = Evaluation.load(tmp_path / "new.npz")
    for part, kept in ((made.id, read.id), *((made.ood[name], read.ood[name]) for name in made.ood)):
        assert (part.trust == kept.trust).all()
        assert (kept.forecast == kept.trust).all()
    for row in summarize([read], (1.0,), resampling=Resampling(resamples=20)):
        ece = stream_calibration_error(made.id.trust, made.id.correct, made.ood[row.ood].trust, share=0.1)
        assert row.measures["stream_ece_10"].estimate == pytest.approx(float(ece))
    Evaluation.of("FNN", 0, plain.predictions("FNN")).save(tmp_path / "old.npz")
    assert Evaluation.load(tmp_path / "old.npz").id.trust is None


def test_the_command_line(call: Caller, tmp_path: Path) -> None:
    out = tmp_path / "run"
    certificate = [word for setting in CERTIFICATE for word in ("-o", setting)]
    options = (*TINY_OPTIONS, *certificate, "-s", "FNN", "--calibrator", "temperature", "--rule", "trust")
    call("train", *options, "--out", out)
    about = json.loads(call("info", "predictor", out, "--json").out)
    assert about["selector"] == "Trust"
    assert about["assumed share of outliers"] == 0.1
    assert about["certificate"].startswith("With probability at least 90 %, at most 50 % of the answers")
    assert "certificate" in call("info", "predictor", out).out
    answers = tmp_path / "answers.csv"
    call("predict", out, "embedded:near", "--error", "0.3", "--out", answers)
    rows = read_rows(answers)
    assert rows
    assert all((float(row["trust"]) >= 0.7) == (row["accepted"].lower() in ("true", "1")) for row in rows)
    assert all(float(row["trust"]) <= float(row["confidence"]) for row in rows)
    refused = ("predict", out, "embedded:near", "--out", tmp_path / "other.csv", "--error", "0.1", "--coverage", "0.5")
    assert "either --coverage or --error" in call.refused(*refused)
    assert "rule.name" in call.refused("train", *TINY_OPTIONS, "--rule", "trusty", "--out", tmp_path / "other")


def rows(part: Any) -> list[list[float]]:
    return part.take(torch.arange(len(part)))[0].flatten(1).tolist()


@pytest.mark.parametrize("scheme", ["SFNN", "SFNN-OCM"])
def test_zeta_in_a_run_rejects_outliers_that_the_network_was_not_trained_on(plain: Workspace, scheme: str) -> None:
    without = plain.selection(scheme)
    rejecting = plain.with_settings("selector.zeta=1")
    assert rejecting.check(scheme)
    with_zeta = rejecting.selection(scheme)
    assert isinstance(with_zeta.selector, Selector)
    outliers = ruling.selector_outliers(plain.data, plain.settings, Scheme.parse(scheme))
    own, used = ({tuple(row) for row in rows(part)} for part in (plain.data.uncertainty, outliers))
    assert used <= own if scheme == "SFNN" else not used & own
    gates = torch.cat([with_zeta.predictions[name].selection for name in plain.data.ood])
    before = torch.cat([without.predictions[name].selection for name in plain.data.ood])
    assert gates.mean() < before.mean()
    again = plain.with_settings("selector.zeta=1").selection(scheme)
    assert torch.equal(again.predictions["test"].selection, with_zeta.predictions["test"].selection)


def test_zeta_is_refused_before_training_where_no_outliers_can_be_made(plain: Workspace) -> None:
    column = ArrayData(torch.rand(60, 1), torch.arange(60) % 2)
    workspace = on(plain, TrainingData(column, column), "selector.zeta=1", network=nn.Linear(1, 2))
    with pytest.raises(ValueError, match="cannot make outliers from these inputs"):
        workspace.check("SFNN")
