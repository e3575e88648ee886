"""Trust as deployed: in decisions, thresholds, files, exported programs and early stopping."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
from predictors import CLASSES, SHAPE, digits, posterior
from torch import Tensor

from calibrant import load
from calibrant.calibrators import TemperatureScaling
from calibrant.data import open_source
from calibrant.deploy import Backbone, Decision, EarlyStopping, Predictor
from calibrant.detectors import OutlierScores
from calibrant.predictions import Predictions
from calibrant.selective import SIRC, Certificate, Trust

NAMES = ("gen", "energy", "knn")  # as the columns of the scores are; trust may read them in another order


@dataclass(frozen=True)
class Trusting:
    """An ensemble of digits with a temperature, three detectors, and trust fitted to the letters."""

    scaling: TemperatureScaling
    outliers: OutlierScores
    trust: Trust
    members: int
    validation: Predictions

    def predictor(self, **settings: object) -> Predictor:
        given = {"calibrator": self.scaling, "outliers": self.outliers, "selector": self.trust}
        return Predictor(
            digits(self.members).ensemble, backbone=Backbone("mlp-24", SHAPE, CLASSES), **{**given, **settings}
        )


@cache
def trusting(members: int) -> Trusting:
    ensemble, (_, x, y) = digits(members).ensemble, posterior()
    train, validation = ensemble.predict([x[:1000]]), ensemble.predict([(x[1000:], y[1000:])])
    scorer = OutlierScores(NAMES, max_points=300).fit(train.features, train.logits)
    scaling = TemperatureScaling().fit(validation.logits, validation.labels)
    letters = ensemble.predict([open_source("embedded:ood").inputs[:200]])
    calibrated = [scaling.calibrate(part.with_scores(scorer)) for part in (validation, letters)]
    trust = Trust(0.2).fit(*calibrated, ("knn", "energy", "gen"))
    trust.threshold_for_error(0.1)
    return Trusting(scaling, scorer, trust, members, calibrated[0])


def stream() -> Tensor:
    """Digits, letters and noise."""
    noise = torch.randint(255, (100, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return torch.cat([digits(1).test[:300], open_source("embedded:near").inputs[:100], noise])


def by_hand(trust: Trust, decision: Decision) -> Tensor:
    """c (1 - pi) / ((1 - pi) + pi ratio), in float64, from what the decision says of confidence and scores."""
    columns = torch.stack([decision.scores[name] for name in trust.names], 1)
    ratio, pi = trust.log_ratio(columns).double().exp(), trust.share
    return decision.confidence.double() * (1 - pi) / ((1 - pi) + pi * ratio)


def same(first: Decision, second: Decision) -> None:
    for name in ("predicted", "confidence", "probabilities", "trust", "accepted", "acceptance", "ood_score"):
        assert torch.equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize("members", [1, 4])
def test_a_decision_has_the_trust_of_its_confidence_and_scores(members: int) -> None:
    parts = trusting(members)
    decision = parts.predictor()(stream())
    assert tuple(decision.scores) == NAMES
    assert decision.trust is not None
    torch.testing.assert_close(decision.trust.double(), by_hand(parts.trust, decision), atol=1e-6, rtol=1e-4)
    assert torch.equal(decision.accepted, decision.trust >= decision.threshold)
    assert torch.equal(decision.acceptance, decision.trust)
    assert decision.threshold == pytest.approx(0.9)
    assert decision.accepted[:300].float().mean() > decision.accepted[300:].float().mean()
    assert decision.table()["trust"] == decision.trust.tolist()
    assert len(decision[:7].trust) == 7


@pytest.mark.parametrize("names", [("knn", "energy", "gen"), ("energy", "svm", "gen", "knn")])
def test_the_columns_may_come_in_any_order(names: tuple[str, ...]) -> None:
    parts = trusting(1)
    train = digits(1).ensemble.predict([posterior()[1][:1000]])
    other = OutlierScores(names, max_points=300, options={"svm": {"components": 16}} if "svm" in names else None)
    predictor = parts.predictor(outliers=other.fit(train.features, train.logits))
    found, expected = predictor(stream()).trust, parts.predictor()(stream()).trust
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    without = OutlierScores(("energy",)).fit(train.features, train.logits)
    if parts.trust.names != ("energy",):
        with pytest.raises(ValueError, match="the selector reads the score"):
            parts.predictor(outliers=without)


def test_thresholds_by_error_coverage_and_share() -> None:
    parts = trusting(1)
    predictor, x = parts.predictor(), stream()
    decision = predictor(x)
    for error in (0.0, 0.05, 0.3, 1.0):
        changed = predictor.at_error(error)(x)
        assert changed.threshold == pytest.approx(1 - error)
        assert torch.equal(changed.trust, decision.trust)
        assert torch.equal(changed.accepted, decision.trust >= changed.threshold)
    on_validation = predictor.at_coverage(0.6)(posterior()[1][1000:])
    assert on_validation.coverage == pytest.approx(0.6, abs=0.01)
    shared = predictor.at_share(0.6)(x)
    torch.testing.assert_close(
        shared.trust.double(), by_hand(parts.trust.with_share(0.6), decision), atol=1e-6, rtol=1e-4
    )
    assert shared.threshold == decision.threshold
    assert (shared.trust <= decision.trust).all()
    assert torch.equal(predictor.at_share(0.0)(x).trust, decision.confidence)
    assert predictor(x).threshold == decision.threshold  # they hold for the new predictor only
    with pytest.raises(ValueError, match=r"error must lie in \[0, 1\], not 1.5"):
        predictor.at_error(1.5)
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\), not 1"):
        predictor.at_share(1.0)


def test_sirc_has_no_trust() -> None:
    parts = trusting(1)
    sirc = SIRC("knn").fit(parts.validation)
    sirc.threshold(0.9)
    predictor = parts.predictor(selector=sirc)
    decision = predictor(stream())
    assert decision.trust is None
    assert "trust" not in decision.table()
    with pytest.raises(ValueError, match="error cannot be chosen: this predictor's rule is not trust"):
        predictor.at_error(0.1)
    with pytest.raises(ValueError, match="share cannot be chosen: this predictor's rule is not trust"):
        predictor.at_share(0.1)


@pytest.mark.parametrize("members", [1, 4])
def test_saved_and_loaded_it_decides_the_same_bits(members: int, tmp_path: Path) -> None:
    predictor = trusting(members).predictor()
    x = stream()
    for number, each in enumerate((predictor, predictor.at_error(0.3), predictor.at_share(0.5))):
        read = load(each.save(tmp_path / str(number)))
        same(read(x), each(x))
        same(read.at_error(0.2)(x), each.at_error(0.2)(x))
        assert read.selector.share == each.selector.share


def test_a_certificate_sets_the_threshold_and_is_saved(tmp_path: Path) -> None:
    certificate = Certificate(0.1, 0.2, None, 0.1, "letters", 0.75, 90, 100, 2, 3, 100)
    predictor = trusting(1).predictor(certificate=certificate)
    assert predictor.threshold == 0.75
    read = load(predictor.save(tmp_path / "folder"))
    assert read.certificate == certificate
    same(read(stream()), predictor(stream()))
    nothing = Certificate(0.1, 0.2, None, 0.1, "letters", total=100, outliers_total=100)
    assert trusting(1).predictor(certificate=nothing).threshold == pytest.approx(0.9)
    with pytest.raises(ValueError, match=r"threshold must be the certified one, 0\.75, or left out"):
        trusting(1).predictor(certificate=certificate, threshold=0.5)


def agrees(found: dict[str, Tensor], decision: Decision) -> None:
    """The same decisions, except within 1e-4 of the threshold."""
    edge = (decision.trust - decision.threshold).abs() < 1e-4
    assert ((found["accepted"] == decision.accepted) | edge).all()
    assert edge.sum() < 5
    for name in ("trust", "confidence"):
        torch.testing.assert_close(found[name], getattr(decision, name), atol=1e-4, rtol=1e-3)


def test_exported_it_decides_the_same(tmp_path: Path) -> None:
    onnx = all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript", "onnxruntime"))
    predictor, x = trusting(1).predictor(), stream()
    outputs = ["predicted", "confidence", "probabilities", "accepted", "outlier_scores", "ood_score", "acceptance"]
    outputs.append("trust")
    files = predictor.export(tmp_path if onnx else tmp_path / "decision.pt2", x[:2])
    agrees(dict(zip(outputs, torch.export.load(files[0]).module()(x))), predictor(x))
    if onnx:
        import onnxruntime

        session = onnxruntime.InferenceSession(files[1], providers=["CPUExecutionProvider"])
        assert [output.name for output in session.get_outputs()] == outputs
        agrees(dict(zip(outputs, map(torch.from_numpy, session.run(None, {"x": x.numpy()})))), predictor(x))


def test_early_stopping_of_a_bayesian_ensemble() -> None:
    predictor, x = trusting(12).predictor(), stream()
    whole, early = predictor(x), predictor(x, early=EarlyStopping())
    assert early.mean_members < 10
    assert (early.accepted != whole.accepted).float().mean() < 0.02
    assert (early.predicted != whole.predicted).float().mean() < 0.02
    torch.testing.assert_close(early.trust.double(), by_hand(predictor.selector, early), atol=1e-6, rtol=1e-4)
