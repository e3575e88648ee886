from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from modules import examples
from predictors import digits, posterior
from torch import nn

import calibrant
from calibrant import Ensemble, MeanField
from calibrant.deploy import Backbone, Decision, Predictor, load, saving
from calibrant.detectors import OutlierScores
from calibrant.files import checksum
from calibrant.selective import BaseSelector, ConfidenceSelector

FILES = ["predictor.json", "ensemble.safetensors", "outliers.safetensors", "selector.safetensors"]


def same(a: Decision, b: Decision) -> bool:
    names = ("predicted", "confidence", "probabilities", "accepted", "ood_score", "acceptance", "members")
    tensors = [(getattr(a, name), getattr(b, name)) for name in names]
    tensors.append((a.predictions.columns(), b.predictions.columns()))
    return a.classes == b.classes and [*a.scores] == [*b.scores] and all(torch.equal(*pair) for pair in tensors)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return digits(2).predictor(0.7, classes=[f"digit {n}" for n in range(10)]).save(tmp_path / "folder")


def altered(folder: Path, change: Callable[[dict[str, object]], object]) -> Path:
    """`folder` with its record changed and the checksum made good."""
    record = json.loads((folder / "predictor.json").read_text())
    del record["checksum"]
    change(record)
    (folder / "predictor.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    return folder


def test_a_saved_predictor_decides_the_same_to_the_bit(tmp_path: Path) -> None:
    parts = digits(2)
    settings = {"ood_score": "svm", "classes": [f"digit {n}" for n in range(10)]}
    predictor = parts.predictor(0.4, **settings)
    found = calibrant.load(predictor.save(tmp_path / "new" / "folder"), device="cpu")
    assert same(found(parts.test), predictor(parts.test))
    assert found.threshold == predictor.threshold
    assert found.backbone == predictor.backbone
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(FILES)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["folder"]
    again = load(found.save(tmp_path / "again"))
    assert same(again(parts.test), predictor(parts.test))


def test_members_drawn_on_demand_are_stored_and_are_the_same(tmp_path: Path) -> None:
    q, x, _ = posterior()
    drawn = Predictor(q.sample(3, seed=4), backbone=Backbone("mlp-24", (1, 8, 8), 10))
    found = load(drawn.save(tmp_path / "folder"))
    assert same(found(x[:9]), drawn(x[:9]))


@pytest.mark.parametrize("threshold", [None, 0.4, math.inf, -math.inf])
def test_thresholds_survive(tmp_path: Path, threshold: float | None) -> None:
    predictor = digits(2).predictor(outliers=None, selector=None, threshold=threshold)
    assert load(predictor.save(tmp_path / "folder")).threshold == predictor.threshold


def test_the_confidence_selector_survives(tmp_path: Path) -> None:
    parts = digits(2)
    selector = ConfidenceSelector().fit(parts.ensemble.predict([parts.test]).confidence)
    selector.threshold(0.3)
    predictor = parts.predictor(selector=selector)
    found = load(predictor.save(tmp_path / "folder"))
    assert same(found(parts.test), predictor(parts.test))
    assert found(parts.test).coverage == pytest.approx(0.3, abs=0.002)


@pytest.mark.parametrize("kind", list(examples()))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_an_architecture_of_ones_own_is_passed_at_load(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    module, x = examples()[kind]
    predictor = Predictor(MeanField(module.to(dtype), init_std=0.1).sample(3))
    decision = predictor(x)
    fresh = examples()[kind][0]
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    found = load(predictor.save(tmp_path / "folder"), module=fresh)
    assert same(found(x), decision)
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    with pytest.raises(ValueError, match="module must be given"):
        load(tmp_path / "folder")
    with pytest.raises(ValueError, match="module does not fit the saved weights"):
        load(tmp_path / "folder", module=nn.Linear(2, 2))


def test_a_deep_ensemble_with_its_own_statistics_and_normalization(tmp_path: Path) -> None:
    from calibrant.backbones.normalization import Normalize

    def module() -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 3))

    x = torch.randint(255, (8, 1, 8, 8), dtype=torch.uint8)
    networks = [Normalize(module(), torch.tensor([0.4]), torch.tensor([0.2])) for _ in range(2)]
    for network in networks:
        network(x + 1)  # moves the running statistics
    ensemble = Ensemble.stack(networks)
    outliers = OutlierScores(["neighbors"]).fit(ensemble.predict([x]).features)
    predictor = Predictor(ensemble, outliers=outliers, feature_layer="module.3")
    found = load(predictor.save(tmp_path / "folder"), module=module())
    assert same(found(x), predictor(x))
    wrapped = load(tmp_path / "folder", module=Normalize(module(), torch.zeros(1), torch.ones(1)))
    assert same(wrapped(x), predictor(x))


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_folder_is_refused_in_one_sentence(saved: Path, file: str, damage: str) -> None:
    path = saved / file
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    with pytest.raises(ValueError, match=r"damaged|not a saved predictor: it has no predictor\.json") as caught:
        load(saved)
    assert "\n" not in str(caught.value)
    assert "folder" in str(caught.value)


def test_foreign_and_newer_folders_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"not a saved predictor: it has no predictor\.json"):
        load(tmp_path / "nowhere")
    other = tmp_path / "other"
    other.mkdir()
    for content in ("[]", "{}", '{"format": "other"}'):
        (other / "predictor.json").write_text(content)
        with pytest.raises(ValueError, match="is of another program"):
            load(other)
    record = json.loads((saved / "predictor.json").read_text())
    (saved / "predictor.json").write_text(json.dumps({**record, "version": 4}))
    with pytest.raises(ValueError, match="format version 4, but this calibrant reads up to 3: upgrade"):
        load(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["selector"].update(kind="os.system"),
        lambda record: record["selector"].update(surprise=1),
        lambda record: record["outliers"].update(scores=["__import__"]),
        lambda record: record["backbone"].update(name="os.system"),
        lambda record: record["backbone"].update(name="mlp-25"),
        lambda record: record["files"].clear(),
        lambda record: record.pop("members"),
        lambda record: record.update(version="new", backbone=3),
        lambda record: record.update(outliers=[1]),
    ],
)
def test_a_forged_record_is_refused_in_one_sentence(saved: Path, change: Callable[[dict[str, object]], object]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        load(altered(saved, change))
    assert "\n" not in str(caught.value)


def test_nothing_but_a_predictor_is_written_over(saved: Path, tmp_path: Path) -> None:
    parts = digits(2)
    notes = tmp_path / "notes"
    notes.mkdir()
    parts.predictor().save(notes)  # empty
    assert load(notes)
    for name, content in (("file", None), ("full", "thesis.tex"), ("json", "predictor.json")):
        target = tmp_path / name
        if content is None:
            target.write_text("{}")
        else:
            target.mkdir()
            (target / content).write_text("{}")
        with pytest.raises(ValueError, match="holds something that is not a predictor"):
            parts.predictor().save(target)
    parts.predictor(0.2).save(saved)
    assert load(saved).threshold == parts.predictor(0.2).threshold
    assert not list(tmp_path.glob(".*"))


def test_a_save_that_fails_leaves_the_old_predictor(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = load(saved)(digits(2).test)

    def fail(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving, "write_json", fail)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        digits(2).predictor(0.2).save(saved)
    monkeypatch.undo()
    assert same(load(saved)(digits(2).test), before)
    assert not list(saved.parent.glob(".*"))


def test_a_rename_that_fails_puts_the_old_predictor_back(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(ValueError, match="cannot be written: Input/output error"):
        digits(2).predictor(0.2).save(saved)
    monkeypatch.undo()
    assert load(saved)
    assert not list(saved.parent.glob(".*"))


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    class Own(BaseSelector):
        def forward(self, confidence: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            return confidence

    own = Own()._remember(torch.rand(10))
    own.threshold(0.5)
    with pytest.raises(
        ValueError, match="selector is a Own; only Selector, ConfidenceSelector, Trust, SIRC can be saved"
    ):
        digits(2).predictor(selector=own).save(tmp_path / "folder")
    with pytest.raises(ValueError, match="backbone 'mlp-25' is not the network of the ensemble"):
        digits(2).predictor(backbone=Backbone("mlp-25", (1, 8, 8), 10)).save(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_nothing_in_the_folder_is_a_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        content = path.read_bytes()
        assert content[:1] == b"{" if path.suffix == ".json" else content[8:9] == b"{"


def test_a_predictor_that_0_1_0_saved_decides_as_it_did_there() -> None:
    folder = Path(__file__).parent / "predictor_of_0.1.0"
    expected = json.loads((folder / "decision.json").read_text())
    decision = load(folder)(torch.tensor(expected["inputs"]))
    assert decision.classes == ("no", "yes")
    assert decision.predicted.tolist() == expected["predicted"]
    assert decision.accepted.tolist() == expected["accepted"]
    assert decision.confidence.tolist() == pytest.approx(expected["confidence"], abs=1e-6)
    assert decision.acceptance.tolist() == pytest.approx(expected["acceptance"], abs=1e-6)
