"""Vector scaling, isotonic regression and the choice among calibrators, against other libraries and brute force."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from torch import Tensor
from torch.nn import functional

from calibrant import calibrators
from calibrant.calibrators import AutoCalibrator, Calibrator, IsotonicCalibration, TemperatureScaling, VectorScaling
from calibrant.calibrators.choosing import cross_fitted, fold_numbers, simplest_best
from calibrant.calibrators.fits import FITS, softmax
from calibrant.predictions import Predictions
from calibrant.slots import lookup, names

KINDS = {"temperature": TemperatureScaling, "vector": VectorScaling, "isotonic": IsotonicCalibration}


def drawn(n: int = 600, classes: int = 4, seed: int = 0, tilt: float = 1.0) -> tuple[Tensor, Tensor]:
    """Overconfident logits whose first class is underestimated by `tilt`."""
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    right = logits / 2 + tilt * torch.eye(classes, dtype=torch.float64)[0]
    return logits, right.softmax(1).multinomial(1, generator=generator).squeeze(1)


def test_vector_scaling_is_that_of_probmetrics(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("probmetrics")
    if importlib.util.find_spec("numba") is None:  # which its default solver does not use, but its files import
        stub = types.ModuleType("numba")
        stub.njit = lambda *functions, **_: functions[0] if functions else stub.njit  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "numba", stub)
    factory = importlib.import_module("probmetrics.calibrators")
    logits, labels = drawn()
    ours = VectorScaling().fit(logits, labels).probabilities(logits).numpy()
    p = logits.softmax(-1).numpy()
    theirs = factory.get_calibrator("svs").fit(p, labels.numpy()).predict_proba(p)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_vector_scaling_is_the_minimum_of_its_objective(penalty: float) -> None:
    logits, labels = drawn(300, 3)
    fitted = VectorScaling(penalty=penalty).fit(logits, labels)
    temperature = TemperatureScaling().fit(logits, labels).temperature_
    q = (300 * (logits / temperature).softmax(-1) + 1 / 3) / 301

    def objective(values: np.ndarray) -> float:
        scale, bias = torch.from_numpy(values).split(3)
        held = penalty * 3 / 300 * float((scale - 1).square().sum() + bias.square().sum())
        return float(functional.cross_entropy(scale * q.log() + bias, labels)) + held

    found = np.concatenate([fitted.scale.numpy(), fitted.bias.numpy()])
    best = minimize(objective, np.concatenate([np.ones(3), np.zeros(3)]), method="BFGS", options={"gtol": 1e-8})
    assert objective(found) <= best.fun + 1e-9
    np.testing.assert_allclose(found, best.x, atol=1e-3)
    torch.testing.assert_close(fitted.transform(logits), fitted.scale * q.log() + fitted.bias)


def test_vector_scaling_recovers_a_class_bias_and_changes_the_class() -> None:
    logits, labels = drawn(20_000, 3, tilt=1.5)
    fitted = VectorScaling().fit(logits, labels)
    truth = (logits / 2 + 1.5 * torch.eye(3)[0]).softmax(-1)
    assert float((fitted.probabilities(logits) - truth).abs().mean()) < 0.01
    assert not torch.equal(fitted.probabilities(logits).argmax(1), logits.argmax(1))
    assert not fitted.keeps_class
    barely = VectorScaling(penalty=1e8).fit(logits, labels)
    torch.testing.assert_close(barely.scale, torch.ones(3, dtype=torch.float64), atol=1e-4, rtol=0)


def test_isotonic_of_many_classes_is_the_pooled_regression_of_scikit_learn_and_keeps_the_class() -> None:
    logits, labels = drawn(300, 5)
    fitted = IsotonicCalibration().fit(logits, labels)
    p, hit = logits.softmax(-1).numpy(), np.eye(5)[labels.numpy()]
    g = IsotonicRegression(out_of_bounds="clip").fit(p.ravel(), hit.ravel())
    new = drawn(200, 5, seed=1)[0]
    q = new.softmax(-1).numpy()
    mass = 300 * g.predict(q.ravel()).reshape(q.shape) + q + 1 / 5
    expected = mass / mass.sum(1, keepdims=True)
    np.testing.assert_allclose(fitted.probabilities(new).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(fitted.probabilities(new.float()).numpy(), expected, atol=1e-5)
    assert fitted.keeps_class
    assert torch.equal(fitted.probabilities(new).argmax(1), new.argmax(1))
    assert float(fitted.probabilities(new).min()) > 1 / (5 * 302 * 5)


def test_isotonic_of_two_classes_is_that_of_the_second() -> None:
    logits, labels = drawn(300, 2)
    fitted = IsotonicCalibration().fit(logits, labels)
    p = logits.softmax(-1)[:, 1].numpy()
    g = IsotonicRegression(out_of_bounds="clip").fit(p, labels.numpy()).predict(p)
    np.testing.assert_allclose(fitted.probabilities(logits)[:, 1].numpy(), (300 * g + p + 0.5) / 302, atol=1e-12)
    assert not fitted.keeps_class
    alone = fitted.of_probabilities(p)
    np.testing.assert_allclose(alone.numpy(), (300 * g + p + 0.5) / 302, atol=1e-12)


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("classes", [2, 4])
def test_numpy_and_torch_are_the_same_map(name: str, classes: int) -> None:
    logits, labels = drawn(classes=classes)
    new = drawn(classes=classes, seed=3)[0]
    how = FITS[name]
    state = how.fit(logits.numpy(), labels.numpy())
    module = KINDS[name]().fit(logits, labels)
    np.testing.assert_allclose(how.probabilities(new.numpy(), state), module.probabilities(new).numpy(), atol=1e-12)
    np.testing.assert_allclose(softmax(new.numpy()), new.softmax(-1).numpy())
    if name == "temperature":
        assert state["temperature"] == pytest.approx(module.temperature_, rel=1e-9)


def test_the_temperature_in_numpy_is_as_good_as_that_in_torch_also_in_hard_cases() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        shape = int(rng.integers(1, 40)), int(rng.integers(2, 7))
        z = np.exp(rng.uniform(-4, 4)) * rng.normal(size=shape)
        y = z.argmax(1) if seed % 3 == 0 else rng.integers(shape[1], size=shape[0])
        logits, labels = torch.from_numpy(z), torch.from_numpy(y)
        ours = functional.cross_entropy(logits / FITS["temperature"].fit(z, y)["temperature"], labels)
        assert (
            float(ours)
            <= float(functional.cross_entropy(TemperatureScaling().fit(z, y).transform(logits), labels)) + 1e-9
        )


@pytest.mark.parametrize("kind", [VectorScaling, IsotonicCalibration, AutoCalibrator])
@pytest.mark.parametrize("classes", [2, 4])
def test_state_and_config_are_the_whole_and_the_file_too(kind: type[Calibrator], classes: int, tmp_path: Path) -> None:
    logits, labels = drawn(classes=classes)
    fitted = kind().fit(logits, labels)
    again = kind.from_state(fitted.config(), fitted.state_dict())
    read = calibrators.load(calibrators.save(fitted, tmp_path / "calibrator.json"))
    for other in (again, read):
        assert torch.equal(other.transform(logits), fitted.transform(logits))
        assert other.fingerprint() == fitted.fingerprint()
        assert other.keeps_class == fitted.keeps_class
        assert other.facts() == fitted.facts()
    members = torch.stack([logits, drawn(classes=classes, seed=1)[0]])
    raw = Predictions.from_logits(members.clone(), labels=labels)
    torch.testing.assert_close(fitted.calibrate(raw).probabilities, fitted.probabilities(members))
    torch.testing.assert_close(fitted.of_probabilities(raw.probabilities), fitted.probabilities(members))
    torch.testing.assert_close(fitted.half().transform(logits), again.transform(logits))
    assert all(isinstance(value, float | int | str) for value in fitted.facts().values())


def test_auto_takes_what_the_data_needs() -> None:
    assert {"auto", "isotonic", "vector"} <= set(names("calibrator"))
    assert lookup("calibrator", "auto") is AutoCalibrator
    generator = torch.Generator().manual_seed(0)
    honest = 2 * torch.randn(2000, 3, generator=generator, dtype=torch.float64)
    labels = honest.softmax(1).multinomial(1, generator=generator).squeeze(1)
    none = AutoCalibrator().fit(honest, labels)
    assert none.chosen == "none"
    assert torch.equal(none.transform(honest), honest)
    assert none.keeps_class
    assert AutoCalibrator().fit(*drawn(2000, tilt=0.0)).chosen == "temperature"
    tilted = AutoCalibrator().fit(*drawn(2000, tilt=2.0))
    assert tilted.chosen == "vector"
    assert not tilted.keeps_class
    assert tilted.facts()["chosen"] == "vector"
    assert tilted.losses["vector"] < tilted.losses["temperature"] < tilted.losses["none"]
    wide = 3 * torch.randn(4000, 3, generator=generator, dtype=torch.float64)  # right in half of what it is sure of
    coin = torch.rand(4000, generator=generator) < 0.5
    answer = torch.where(coin, wide.argmax(1), torch.randint(3, (4000,), generator=generator))
    assert AutoCalibrator(candidates=("none", "isotonic")).fit(wide, answer).chosen == "isotonic"


def test_the_losses_of_auto_are_those_of_cross_fitting() -> None:
    logits, labels = drawn(200)
    fitted = AutoCalibrator(folds=4, seed=3).fit(logits, labels)
    fold = fold_numbers(200, 4, 3)
    assert sorted(np.bincount(fold)) == [50] * 4
    for name, how in FITS.items():
        p = cross_fitted(how, logits.numpy(), labels.numpy(), fold)
        loss = -np.log(p[np.arange(200), labels.numpy()]).mean()
        assert fitted.losses[name] == pytest.approx(loss, rel=1e-6)
    assert simplest_best({"a": np.ones(3), "b": np.ones(3)}) == "a"


def test_few_rows_and_bad_input() -> None:
    assert AutoCalibrator().fit(torch.tensor([[1.0, 0.0]]), [0]).chosen in names("calibrator")
    AutoCalibrator().fit(torch.randn(3, 2), [0, 1, 0])
    for kind in (VectorScaling, IsotonicCalibration):
        assert torch.isfinite(kind().fit(torch.tensor([[1.0, 0.0, 0.0]]), [0]).transform(torch.zeros(1, 3))).all()
    with pytest.raises(ValueError, match="candidates must name calibrators"):
        AutoCalibrator(candidates=("auto",))
    with pytest.raises(ValueError, match="there is no calibrator 'tempo'"):
        AutoCalibrator(candidates=("tempo",))
    with pytest.raises(ValueError, match="folds must be a whole number"):
        AutoCalibrator(folds=1)
    with pytest.raises(ValueError, match="penalty must be"):
        VectorScaling(penalty=-1)
    fitted = IsotonicCalibration().fit(*drawn())
    with pytest.raises(ValueError, match="probabilities must have shape"):
        fitted.of_probabilities(torch.full((2, 4), 2.0))
    with pytest.raises(ValueError, match="logits have 2 columns"):
        fitted.of_probabilities(torch.full((2,), 0.5))


def test_damaged_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    file = calibrators.save(VectorScaling().fit(*drawn()), tmp_path / "calibrator.json")
    record = json.loads(file.read_text())
    with pytest.raises(ValueError, match="does not exist; write one with"):
        calibrators.load(tmp_path / "other.json")
    for change in (
        {"format": "other"},
        {"version": 99},
        {"state": {"scale": ["a"]}},
        {"state": []},
    ):
        file.write_text(json.dumps({**record, **change}))
        with pytest.raises(ValueError, match="is not a calibrator that this version reads"):
            calibrators.load(file)
    file.write_text("{")
    with pytest.raises(ValueError, match="is not a calibrator"):
        calibrators.load(file)
    for change in (
        {"state": {**record["state"], "bias": [0.0]}},
        {"state": {"scale": [1.0]}},
        {"config": {"steps": 3}},
        {"state": {**record["state"], "classes": 0}},
    ):
        file.write_text(json.dumps({**record, **change}))
        with pytest.raises(ValueError, match=r"tensors do not belong|is damaged|classes"):
            calibrators.load(file)
    file.write_text(json.dumps({**record, "name": "alien", "module": "mars"}))
    with pytest.raises(ValueError, match="the calibrator 'alien' of the plugin mars is needed"):
        calibrators.load(file)
    step = calibrators.save(IsotonicCalibration().fit(*drawn()), tmp_path / "isotonic.json")
    falling = json.loads(step.read_text())
    for rows in (0, -1):
        step.write_text(json.dumps({**falling, "state": {**falling["state"], "rows": rows}}))
        with pytest.raises(ValueError, match="its function does not increase"):
            calibrators.load(step)
    falling["state"]["levels"].reverse()
    step.write_text(json.dumps(falling))
    with pytest.raises(ValueError, match="its function does not increase"):
        calibrators.load(step)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "calibrator.json"
    with file.open("wb") as opened:
        opened.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(ValueError, match="is larger than 67108864 bytes"):
        calibrators.load(file)


def test_the_calibrator_inside_moves_with_auto() -> None:
    fitted = AutoCalibrator(candidates=("temperature",)).fit(*drawn(20))
    moved = dict(fitted.to("meta").named_buffers())
    assert "inner.temperature" in moved
    assert {value.device.type for value in moved.values()} == {"meta"}


def test_fits_of_tables_need_no_torch() -> None:
    code = "import sys, calibrant.calibrators.fits, calibrant.calibrators.choosing, calibrant.calibrators.saved"
    done = subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], capture_output=True)
    assert done.returncode == 0, done.stderr
