"""Any detector as the OOD score of a predictor and as an input of its selector."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from predictors import digits, posterior

from calibrant import Ensemble, Predictions, slots
from calibrant.config.loading import load_settings
from calibrant.deploy import EarlyStopping, Predictor, load
from calibrant.deploy.deploying import predictor_of
from calibrant.detectors import LogitDetector, OutlierScores
from calibrant.detectors.logits import logit_names
from calibrant.selective import Selector, Training
from calibrant.training import Workspace, open_data

NAMES = ("knn", "vim", "fdbd", "mahalanobis", "relative_mahalanobis", "msp", "entropy", "mutual_information", "energy")


@cache
def everything(members: int) -> tuple[Predictor, OutlierScores, Predictions]:
    """A predictor whose selector reads detectors of every kind, and what its ensemble says of the test data."""
    _, x, y = posterior()
    ensemble = digits(members).ensemble
    outliers = OutlierScores(NAMES, max_points=300).fit(ensemble.predict([(x[:1000], y[:1000])]))
    validation = ensemble.predict([(x[1000:], y[1000:])])
    selector = Selector(training=Training(steps=100))
    selector.fit(validation.confidence, outliers.score(validation), validation.correct).threshold(0.7)
    predictor = Predictor(ensemble, outliers=outliers, selector=selector, backbone=digits(2).predictor().backbone)
    return predictor, outliers, ensemble.predict([digits(members).test])


def test_detectors_of_every_kind_decide_as_they_were_fitted() -> None:
    predictor, outliers, said = everything(3)
    decision = predictor(digits(3).test)
    scores = outliers.score(said)
    torch.testing.assert_close(decision.predictions.columns(), scores, atol=1e-4, rtol=1e-4)
    assert tuple(decision.scores) == NAMES
    assert predictor.selector is not None
    expected = predictor.selector.acceptance(said.probabilities, scores)
    torch.testing.assert_close(decision.acceptance, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", [*logit_names(), "vim", "mahalanobis"])
def test_any_detector_can_be_the_ood_score(name: str) -> None:
    _, outliers, said = everything(3)
    decision = Predictor(digits(3).ensemble, outliers=outliers, ood_score=name)(digits(3).test)
    kind = slots.lookup("detector", name)
    if issubclass(kind, LogitDetector) and name not in NAMES:
        expected = kind().score(logits=said.logits)
    else:
        expected = outliers.score(said)[:, NAMES.index(name)]
    torch.testing.assert_close(decision.ood_score, expected, atol=1e-4, rtol=1e-4)


def test_members_stop_early_with_detectors_of_the_whole_ensemble() -> None:
    predictor, *_ = everything(8)
    x = digits(8).test[:100]
    early, all_members = predictor(x, early=EarlyStopping()), predictor(x)
    assert early.mean_members < 8
    same = (early.accepted == all_members.accepted) & (early.predicted == all_members.predicted)
    assert float(same.float().mean()) >= 0.97


def test_detectors_are_saved_loaded_and_exported(tmp_path: Path) -> None:
    predictor, *_ = everything(3)
    x = digits(3).test[:40]
    predictor.save(tmp_path / "saved")
    again = load(tmp_path / "saved")(x)
    torch.testing.assert_close(again.predictions.columns(), predictor(x).predictions.columns())
    predictor.export(tmp_path / "decision.pt2", x[:2])
    program = torch.export.load(tmp_path / "decision.pt2").module()
    _, _, _, accepted, scores, *_ = program(x.float() if x.dtype == torch.float32 else x)
    torch.testing.assert_close(scores, again.predictions.columns(), atol=1e-3, rtol=1e-3)
    assert torch.equal(accepted, again.accepted)


def test_means_over_members_of_features_and_logits_are_scored_where_one_network_was_fitted() -> None:
    names = ("density", "gen", "entropy")
    ensemble, x = digits(3).ensemble, digits(3).test[:60]
    said = ensemble.predict([x])
    assert said.features is not None
    features, logits = said.features.mean(0), said.logits.mean(0)
    outliers = OutlierScores(names).fit(features, logits)
    decision = Predictor(ensemble, outliers=outliers)(x)
    torch.testing.assert_close(decision.predictions.columns(), outliers.score(features, logits), atol=1e-4, rtol=1e-4)


def test_detectors_of_logits_alone_need_no_feature_layer() -> None:
    class Quiet(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :3] * 2

    x = torch.randn(30, 4)
    outliers = OutlierScores(("energy", "msp")).fit(logits=Quiet()(x)[None])
    decision = Predictor(Ensemble.of(Quiet()), outliers=outliers, ood_score="gen")(x)
    torch.testing.assert_close(decision.scores["energy"], -(x[:, :3] * 2).logsumexp(1))
    broken = x.clone()
    broken[4, 1] = math.nan
    scores = Predictor(Ensemble.of(Quiet()), outliers=outliers, ood_score="gen")(broken)
    assert scores.ood_score.isnan().nonzero().tolist() == [[4]]
    assert scores.scores["msp"].isnan().nonzero().tolist() == [[4]]


def test_a_saved_predictor_that_needs_a_plugin_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(slots._registered)
    monkeypatch.setattr(slots, "_registered", dict(known))

    @slots.register("detector", "from_outside")
    class FromOutside(LogitDetector):
        def score_logits(self, logits: torch.Tensor) -> torch.Tensor:
            return -logits.std(-1)

    parts = digits(2)
    fitted = OutlierScores(("from_outside",)).fit(parts.ensemble.predict([parts.test]))
    backbone = parts.predictor().backbone
    Predictor(parts.ensemble, outliers=fitted, backbone=backbone).save(tmp_path / "fitted")
    Predictor(parts.ensemble, ood_score="from_outside", backbone=backbone).save(tmp_path / "named")
    assert tuple(load(tmp_path / "fitted")(parts.test[:3]).scores) == ("from_outside",)
    torch.testing.assert_close(
        load(tmp_path / "named")(parts.test[:3]).ood_score, FromOutside().score(logits=parts.ensemble(parts.test[:3]))
    )
    monkeypatch.setattr(slots, "_registered", known)
    for name in ("fitted", "named"):
        with pytest.raises(
            ValueError, match=rf"the detector 'from_outside' of the plugin {__name__} is needed, but not"
        ):
            load(tmp_path / name)
    with pytest.raises(ValueError, match=r"there is no detector 'from_outside'.*another one needs --plugin MODULE"):
        OutlierScores.from_state(fitted.config(), fitted.state_dict())
    with pytest.raises(ValueError, match=r"ood_score must be one of confidence, .*another one needs --plugin MODULE"):
        Predictor(parts.ensemble, ood_score="from_outside", backbone=backbone)


def test_settings_name_detectors_and_their_options(tmp_path: Path) -> None:
    names = ("neighbors", "knn", "vim", "mahalanobis", "gen", "energy")
    overrides = ("fit.epochs=1", "posterior.members=2", "outliers.max_points=200", "selector.steps=20")
    own = (f"outliers.scores=[{', '.join(names)}]", "outliers.options={knn: {k: 3}, gen: {gamma: 0.3}}")
    settings = load_settings("embedded", overrides=(*overrides, *own, "data.train=300"))
    workspace = Workspace(open_data(settings.data, 0), settings, tmp_path)
    with pytest.raises(ValueError, match=r"detector knn has no option 'kk'; it has k, normalize, standardize"):
        workspace.with_settings("outliers.options={knn: {kk: 3}}").train("SBNN")
    assert not (tmp_path / "stages").exists()
    selection = workspace.selection("SBNN")
    assert selection.scorer is not None
    assert selection.scorer.options == {
        "neighbors": {"k": 8, "distance": "kth"},
        "knn": {"k": 3},
        "gen": {"gamma": 0.3},
    }
    expected = selection.predictions["test"]
    decision = predictor_of(workspace, "SBNN", selection)(workspace.data.test.inputs)
    assert tuple(decision.scores) == names
    torch.testing.assert_close(decision.predictions.columns(), expected.columns(names), atol=1e-3, rtol=1e-3)
    again = Workspace(workspace.data, settings, tmp_path).predictions("SBNN")["test"]  # read back
    assert set(again.scores) == {"msp", "max_logit", "energy", "entropy", "mutual_information", *names}
