"""Vector scaling, isotonic regression and the chosen calibrator in a predictor: saved, exported, in the estimator."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import pytest
import torch
from predictors import digits, posterior
from sklearn.base import clone
from torch import Tensor, nn

from calibrant import CalibratedClassifier, Predictor, load
from calibrant.calibrators import AutoCalibrator, Calibrator
from calibrant.deploy import EarlyStopping
from calibrant.deploy.saving import describe
from calibrant.selective import ConfidenceSelector
from calibrant.slots import build

NAMES = ("vector", "isotonic", "auto")


@cache
def predictor_with(name: str) -> Predictor:
    parts, (_, x, y) = digits(2), posterior()
    validation = parts.ensemble.predict([(x[1000:], y[1000:])])
    calibrator: Calibrator = build("calibrator", name).fit(validation.logits, validation.labels)
    selector = ConfidenceSelector().fit(calibrator.calibrate(validation).confidence, calibrator=calibrator)
    selector.threshold(0.6)
    return parts.predictor(outliers=None, selector=selector, calibrator=calibrator)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_applied_saved_and_loaded(name: str, tmp_path: Path) -> None:
    predictor, x = predictor_with(name), digits(2).test
    decision = predictor(x)
    raw = digits(2).ensemble.predict([x])
    assert predictor.calibrator is not None
    torch.testing.assert_close(decision.probabilities, predictor.calibrator.probabilities(raw.logits))
    assert torch.equal(decision.predicted, decision.probabilities.argmax(1))
    found = load(predictor.save(tmp_path / "folder"))
    assert torch.equal(found(x).probabilities, decision.probabilities)
    assert torch.equal(found(x).accepted, decision.accepted)
    about = describe(tmp_path / "folder")
    assert about["calibrator"] == name
    assert predictor.calibrator.facts().items() <= about.items()
    early = predictor(x, early=EarlyStopping())
    assert (early.predicted != decision.predicted).float().mean() <= 0.01


@pytest.mark.parametrize(
    ("name", "suffix"), [("auto", ".pt2"), ("vector", ".onnx"), ("isotonic", ".pt2"), ("isotonic", ".onnx")]
)
def test_exported_it_decides_the_same(name: str, suffix: str, tmp_path: Path) -> None:
    if suffix == ".onnx" and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("no onnxscript")
    predictor, x = predictor_with(name), digits(2).test
    (file,) = predictor.export(tmp_path / f"decision{suffix}", x[:1])
    decision = predictor(x)
    outputs = torch.export.load(file).module()(x) if suffix == ".pt2" else _onnx(file, x)
    predicted, _, probabilities, accepted = outputs[:4]
    torch.testing.assert_close(probabilities, decision.probabilities, atol=1e-4, rtol=1e-3)
    near = decision.probabilities.topk(2).values.diff(dim=1).abs().squeeze(1) < 1e-4
    assert ((predicted == decision.predicted) | near).all()
    edge = (decision.acceptance - decision.threshold).abs() < 1e-4
    assert ((accepted == decision.accepted) | edge).all()


def _onnx(file: Path, x: Tensor) -> list[Tensor]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, {"x": x.numpy()})))
    return [torch.from_numpy(found[key]) for key in ("predicted", "confidence", "probabilities", "accepted")]


def test_the_estimator_takes_them_by_name() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator)
    y = (x[:, 0] + torch.randn(400, generator=generator) > 0.5).long()
    for name in NAMES:
        fitted = CalibratedClassifier(nn.Linear(2, 2), "FNN", epochs=2, device="cpu", calibrator=name).fit(x, y)
        calibrator = fitted.predictor_.calibrator
        assert calibrator is not None
        assert calibrator.fingerprint().startswith(f"{name}:")
        assert (fitted.predict_proba(x).argmax(1) == fitted.predict(x)).all()
    assert isinstance(calibrator, AutoCalibrator)
    assert calibrator.facts()["chosen"] in calibrator.candidates
    options = ("calibrator.options={candidates: 'none, vector', folds: 3}",)
    chosen = CalibratedClassifier(
        nn.Linear(2, 2), "FNN", epochs=2, device="cpu", calibrator="auto", overrides=options
    ).fit(x, y)
    assert chosen.predictor_.calibrator.candidates == ("none", "vector")


def test_a_run_resumes_with_what_was_chosen(tmp_path: Path) -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    classifier = CalibratedClassifier(
        nn.Linear(2, 2), "FNN", epochs=1, device="cpu", calibrator="auto", out=tmp_path / "run"
    )
    first, second = (clone(classifier).fit(x, y).predictor_.calibrator for _ in range(2))
    assert isinstance(second, AutoCalibrator)
    assert second.fingerprint() == first.fingerprint()
    assert second.losses == first.losses
