"""Calibrators as deployed: in decisions, early stopping, files, exported programs; and the selectors that know them."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from predictors import digits, posterior
from torch import Tensor, nn

from calibrant import CalibratedClassifier, Ensemble, load, slots
from calibrant.calibrators import Calibrator, TemperatureScaling, Uncalibrated
from calibrant.data import open_source
from calibrant.deploy import Decision, EarlyStopping, Predictor
from calibrant.deploy.saving import describe
from calibrant.selective import ConfidenceSelector, Selector, Training

PLUGIN = '''
import torch
import calibrant
from calibrant.calibrators import Calibrator

@calibrant.register("calibrator", "shrunk")
class Shrunk(Calibrator):
    """Half way to the uniform distribution."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__()
        self.share = share
        self.register_buffer("seen", torch.tensor(0))

    def config(self):
        return {"share": self.share}

    def fit_logits(self, z, labels):
        self.seen = torch.tensor(len(labels))

    def forward(self, z):
        return ((1 - self.share) * z.softmax(-1) + self.share / z.shape[-1]).log()

    def facts(self):
        return {"seen": int(self.seen)}
'''
SHARP = 8.0


class Sharp(nn.Module):
    """An overconfident network: its logits are `SHARP` times those of the one that was trained."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return SHARP * self.module(x)


@cache
def scaled(members: int) -> tuple[TemperatureScaling, Selector]:
    """The temperature of the digits' ensemble, and a selector on the scaled confidences."""
    parts, (_, x, y) = digits(members), posterior()
    validation = parts.ensemble.predict([(x[1000:], y[1000:])])
    scaling = TemperatureScaling().fit(validation.logits, validation.labels)
    calibrated = scaling.calibrate(validation)
    scores = parts.outliers.score(validation.features)
    selector = Selector(training=Training(steps=200)).fit(
        calibrated.confidence, scores, calibrated.correct, calibrator=calibrated.calibrator
    )
    selector.threshold(0.7)
    return scaling, selector


def calibrated_predictor(members: int, **settings: object) -> Predictor:
    scaling, selector = scaled(members)
    return digits(members).predictor(calibrator=scaling, selector=selector, **settings)


def same(a: Decision, b: Decision) -> bool:
    names = ("predicted", "confidence", "probabilities", "accepted", "ood_score", "acceptance", "members")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def test_none_decides_as_without_a_calibrator_to_the_bit() -> None:
    parts = digits(3)
    assert same(parts.predictor()(parts.test), parts.predictor(calibrator=Uncalibrated())(parts.test))
    early = EarlyStopping()
    bare, none = parts.predictor(), parts.predictor(calibrator=Uncalibrated())
    assert same(bare(parts.test, early=early), none(parts.test, early=early))


@pytest.mark.parametrize("members", [1, 3])
def test_a_temperature_is_applied_as_by_hand(members: int) -> None:
    parts, scaling, selector = digits(members), *scaled(members)
    decision = calibrated_predictor(members, ood_score="energy")(parts.test)
    raw = parts.ensemble.predict([parts.test])
    by_hand = (raw.logits.softmax(-1).mean(0).log() / scaling.temperature_).softmax(-1)
    torch.testing.assert_close(decision.probabilities, by_hand)
    torch.testing.assert_close(decision.probabilities, scaling.probabilities(raw.logits))
    torch.testing.assert_close(decision.confidence, by_hand.amax(-1))
    assert torch.equal(decision.predicted, parts.predictor()(parts.test).predicted)
    accepted = selector.accept(by_hand.amax(-1), parts.outliers.score(raw.features))
    assert (accepted == decision.accepted).float().mean() > 0.995
    torch.testing.assert_close(decision.ood_score, -raw.logits.logsumexp(-1).mean(0))  # of the network's own logits
    assert decision.predictions.calibrator == scaling.fingerprint()
    assert abs(scaling.temperature_ - 1) > 0.05


def test_the_confidence_decides_after_scaling_without_a_selector() -> None:
    parts, scaling = digits(3), scaled(3)[0]
    decision = parts.predictor(outliers=None, selector=None, calibrator=scaling, threshold=0.8)(parts.test)
    assert torch.equal(decision.accepted, decision.confidence >= 0.8)
    torch.testing.assert_close(decision.ood_score, 1 - decision.confidence)


def test_a_coverage_is_that_of_the_scaled_confidences() -> None:
    predictor = calibrated_predictor(3)
    changed = predictor.at_coverage(0.4)
    assert changed.calibrator is predictor.calibrator
    torch.testing.assert_close(changed(digits(3).test).probabilities, predictor(digits(3).test).probabilities)
    assert changed(digits(3).test).coverage < predictor(digits(3).test).coverage
    assert copy.deepcopy(predictor).double().at_coverage(0.4).threshold == pytest.approx(changed.threshold)


@pytest.mark.parametrize("members", [2])
def test_saved_and_loaded_it_decides_the_same_to_the_bit(tmp_path: Path, members: int) -> None:
    predictor, x = calibrated_predictor(members), digits(members).test
    found = load(predictor.save(tmp_path / "folder"))
    assert same(found(x), predictor(x))
    assert (tmp_path / "folder" / "calibrator.safetensors").is_file()
    record = json.loads((tmp_path / "folder" / "predictor.json").read_text())
    assert record["version"] == 2  # which 0.1.0 refuses: it would overlook the calibrator
    assert record["calibrator"] == {"name": "temperature", "module": "calibrant.calibrators.temperature", "config": {}}
    about = describe(tmp_path / "folder")
    assert about["calibrator"] == "temperature"
    assert about["temperature"] == scaled(members)[0].temperature_
    (tmp_path / "folder" / "calibrator.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path / "folder")


def test_a_predictor_of_0_1_0_has_none() -> None:
    found = load(Path(__file__).parent / "predictor_of_0.1.0")
    assert found.calibrator is None
    assert found.selector is not None
    assert found.selector.calibrator == "none"


@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_exported_it_decides_the_same(tmp_path: Path, suffix: str) -> None:
    parts = digits(2)
    scaling = scaled(2)[0]
    raw = parts.ensemble.predict([parts.test])
    selector = ConfidenceSelector().fit(scaling.calibrate(raw).confidence, calibrator=scaling)
    selector.threshold(0.6)
    predictor = parts.predictor(outliers=None, selector=selector, calibrator=scaling)
    if suffix == ".onnx" and importlib.util.find_spec("onnxscript") is None:
        pytest.skip("no onnxscript")
    (file,) = predictor.export(tmp_path / f"decision{suffix}", parts.test[:1])
    if suffix == ".pt2":
        found = dict(zip(("predicted", "confidence", "probabilities", "accepted"), _program(file, parts.test)))
    else:
        found = _onnx(file, parts.test, scaling)
    decision = predictor(parts.test)
    torch.testing.assert_close(found["probabilities"], decision.probabilities, atol=1e-5, rtol=1e-4)
    assert torch.equal(found["predicted"], decision.predicted)
    edge = (decision.acceptance - decision.threshold).abs() < 1e-5
    assert ((found["accepted"] == decision.accepted) | edge).all()


def _program(file: Path, x: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = torch.export.load(file).module()(x)
    return found


def _onnx(file: Path, x: Tensor, scaling: Calibrator) -> dict[str, Tensor]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["calibrator"]) == scaling.fingerprint()
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(None, {"x": x.numpy()}))))


class Tilted(TemperatureScaling):
    """A calibrator that changes the predicted class: it moves the last class up."""

    keeps_class = False

    def forward(self, z: Tensor) -> Tensor:
        last = (torch.arange(z.shape[-1], device=z.device) == z.shape[-1] - 1).to(z)
        return super().forward(z) + 3 * last


@pytest.mark.parametrize("kind", [TemperatureScaling, Tilted])
def test_early_stopping_decides_as_all_members_do(kind: type[TemperatureScaling]) -> None:
    parts, (_, x, y) = digits(20), posterior()
    validation = parts.ensemble.predict([(x[1000:], y[1000:])])
    calibrator = kind().fit(validation.logits, validation.labels)
    calibrated = calibrator.calibrate(validation)
    selector = ConfidenceSelector().fit(calibrated.confidence, calibrator=calibrator)
    selector.threshold(0.7)
    predictor = parts.predictor(outliers=None, selector=selector, calibrator=calibrator)
    full, early = predictor(parts.test), predictor(parts.test, early=EarlyStopping())
    differs = (full.predicted != early.predicted) | (full.accepted != early.accepted)
    assert differs.float().mean() <= 0.01
    assert early.mean_members < 16
    changed = full.predicted != parts.predictor()(parts.test).predicted
    assert bool(changed.any()) == (kind is Tilted)
    ran = early.members == 20
    torch.testing.assert_close(early.probabilities[ran], full.probabilities[ran])


def test_a_selector_of_scaled_confidences_refuses_raw_ones_and_the_reverse() -> None:
    """Fed raw confidences, the threshold of the scaled ones accepts several times as many outliers: that is refused."""
    _, x, y = posterior()
    network = Sharp(digits(1).ensemble.member(0))
    ensemble, outliers = Ensemble.of(network), open_source("embedded:far").inputs
    validation, outside = ensemble.predict([(x[1000:], y[1000:])]), ensemble.predict([outliers])
    scaling = TemperatureScaling().fit(validation.logits, validation.labels)
    assert scaling.temperature_ > 3
    calibrated = scaling.calibrate(validation)
    selector = ConfidenceSelector().fit(calibrated.confidence, calibrator=scaling)
    tau = selector.threshold(0.8)
    right = selector.accept(scaling.calibrate(outside).confidence).float().mean()
    wrong = selector.accept(outside.confidence).float().mean()
    assert right < 0.1
    assert wrong > 0.5

    sentence = r"fitted to confidences of the calibrator temperature:\w+, but the rule's is none; pass that calibrator"
    with pytest.raises(ValueError, match=sentence):
        Predictor(ensemble, selector=selector)
    with pytest.raises(ValueError, match=sentence):
        Predictor(ensemble, selector=selector, calibrator=Uncalibrated())
    other = TemperatureScaling().fit(outside.logits, outside.predicted)
    with pytest.raises(ValueError, match="or fit the selector again"):
        Predictor(ensemble, selector=selector, calibrator=other)
    unscaled = ConfidenceSelector().fit(validation.confidence)
    unscaled.threshold(0.8)
    with pytest.raises(ValueError, match=r"of the calibrator none, but the rule's is temperature:\w+"):
        Predictor(ensemble, selector=unscaled, calibrator=scaling)
    decision = Predictor(ensemble, selector=selector, calibrator=scaling)(outliers)
    assert decision.coverage == pytest.approx(float(right))
    assert decision.threshold == tau.value


def test_selectors_keep_the_fingerprint_in_their_configuration() -> None:
    scaling, selector = scaled(2)
    again = Selector.from_state(selector.config(), selector.state_dict())
    assert again.calibrator == selector.calibrator == scaling.fingerprint()
    plain = ConfidenceSelector().fit(torch.rand(5))
    assert "calibrator" not in plain.config()
    assert "calibrator" not in digits(2).selector.config()  # what 0.1.0 wrote, and reads
    by_name = ConfidenceSelector().fit(torch.rand(5), calibrator="temperature:1")
    assert ConfidenceSelector.from_state(by_name.config(), by_name.state_dict()).calibrator == "temperature:1"


def test_a_calibrator_that_is_not_fitted_or_not_registered_is_refused(tmp_path: Path) -> None:
    parts = digits(2)
    with pytest.raises(ValueError, match="this TemperatureScaling is not fitted"):
        Predictor(parts.ensemble, calibrator=TemperatureScaling())
    tilted = Tilted().fit(torch.randn(20, 10), torch.arange(20) % 10)
    with pytest.raises(ValueError, match=r"Tilted cannot be saved: put @calibrant\.register"):
        Predictor(parts.ensemble, calibrator=tilted).save(tmp_path / "folder")


def test_the_estimator_fits_and_applies_it() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 2, generator=generator)
    y = (x[:, 0] + torch.randn(300, generator=generator) > 0).long()
    module = nn.Linear(2, 2)
    raw, fitted = (
        CalibratedClassifier(module, "FNN", epochs=3, device="cpu", calibrator=name).fit(x, y, validation=0.3)
        for name in ("none", "temperature")
    )
    assert raw.predictor_.calibrator is None
    scaling = fitted.predictor_.calibrator
    assert isinstance(scaling, TemperatureScaling)
    before = torch.from_numpy(raw.predict_proba(x))
    torch.testing.assert_close(torch.from_numpy(fitted.predict_proba(x)), scaling.of_mean(before))
    assert (fitted.predict(x) == raw.predict(x)).all()
    assert abs(float(fitted.accept(x, coverage=0.5).mean()) - 0.5) < 0.1
    assert fitted.get_params()["calibrator"] == "temperature"
    with pytest.raises(ValueError, match=r"setting calibrator.name: there is no calibrator 'temprature'; did you mean"):
        CalibratedClassifier(nn.Linear(2, 2), "FNN", calibrator="temprature").fit(x, y)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in slots.names("calibrator"):
        slots.registration("calibrator", name)
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))
    monkeypatch.setattr(slots, "_plugins", dict(slots._plugins))
    (tmp_path / "shrinking.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shrinking", raising=False)
    slots.load_plugins(["shrinking"])
    return "shrinking"


def test_one_from_outside_is_trained_saved_and_loaded_with_its_plugin_only(plugin: str, tmp_path: Path) -> None:
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    options = ("calibrator.options={share: 0.25}",)
    classifier = CalibratedClassifier(
        nn.Linear(2, 2), "FNN", epochs=3, device="cpu", calibrator="shrunk", overrides=options
    ).fit(x, y)
    assert classifier.predict_proba(x).max() <= 0.875 + 1e-6
    folder = classifier.predictor_.save(tmp_path / "folder")
    assert describe(folder)["seen"] == 20
    found = load(folder, module=nn.Linear(2, 2))
    assert same(found(x), classifier.predictor_(x))
    code = f"from calibrant import load; from torch import nn; load({str(folder)!r}, module=nn.Linear(2, 2))"
    where = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=where)
    sentence = "the calibrator 'shrunk' of the plugin shrinking is needed, but not registered: add --plugin shrinking"
    assert sentence in done.stderr.splitlines()[-1]
    imported = subprocess.run([sys.executable, "-c", f"import shrinking; {code}"], capture_output=True, env=where)
    assert imported.returncode == 0
    with pytest.raises(ValueError, match="calibrator shrunk has no option 'shar'; it has share"):
        CalibratedClassifier(
            nn.Linear(2, 2), "FNN", calibrator="shrunk", overrides=("calibrator.options={shar: 1}",)
        ).fit(x, y)
