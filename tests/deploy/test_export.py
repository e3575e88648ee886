from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from predictors import digits
from torch import Tensor, nn

from calibrant import Ensemble, MeanField
from calibrant.deploy import Decision, Predictor
from calibrant.detectors import OutlierScores
from calibrant.detectors.logits import predictive_entropy
from calibrant.selective import ConfidenceSelector, Selector, Training

NAMES = [f"digit {n}" for n in range(10)]
CLOSE = 1e-4


def agrees(found: dict[str, Tensor], decision: Decision, threshold: float) -> None:
    """The same decisions, except within 1e-4 of the threshold or of a tie."""
    best = decision.probabilities.topk(2, -1).values
    tie = best[:, 0] - best[:, 1] < CLOSE
    edge = (decision.acceptance - threshold).abs() < CLOSE
    assert ((found["predicted"] == decision.predicted) | tie).all()
    assert ((found["accepted"] == decision.accepted) | edge).all()
    assert tie.sum() + edge.sum() < 5
    for name in ("confidence", "probabilities", "ood_score"):
        torch.testing.assert_close(found[name], getattr(decision, name), atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four scores, the selector and 2 members, from an example of one raw image."""
    folder = tmp_path_factory.mktemp("exported") / "new"
    files = digits(2).predictor(0.7, classes=NAMES, ood_score="energy").export(folder, digits(2).test[:1])
    assert files == [folder / "decision.pt2", folder / "decision.onnx"]
    assert sorted(folder.iterdir()) == sorted(files)
    return folder


def test_the_onnx_file_decides_the_same_at_any_batch_size(exported: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    parts = digits(2)
    predictor = parts.predictor(0.7, ood_score="energy")
    session = onnxruntime.InferenceSession(exported / "decision.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert names == [
        "predicted",
        "confidence",
        "probabilities",
        "accepted",
        "outlier_scores",
        "ood_score",
        "acceptance",
    ]
    assert session.get_inputs()[0].shape == ["batch", 1, 8, 8]
    for x in (parts.test, parts.test[:1], torch.randint(255, (1500, 1, 8, 8), dtype=torch.uint8)):
        found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": x.numpy()}))))
        decision = predictor(x)
        agrees(found, decision, predictor.threshold)
        # Rounding may send a point down the other branch of a tree; everything else is smooth.
        smooth, forest = [0, 2, 3], 1
        torch.testing.assert_close(
            found["outlier_scores"][:, smooth], decision.predictions.columns()[:, smooth], atol=1e-4, rtol=1e-4
        )
        assert (found["outlier_scores"] - decision.predictions.columns())[:, forest].abs().median() < 1e-6
        torch.testing.assert_close(found["outlier_scores"], decision.predictions.columns(), atol=1e-2, rtol=1e-2)
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == NAMES
    assert json.loads(facts["outlier_scores"]) == ["density", "forest", "svm", "neighbors"]
    assert float(json.loads(facts["threshold"])) == predictor.threshold


def test_the_program_decides_the_same_at_any_batch_size(exported: Path) -> None:
    parts = digits(2)
    predictor = parts.predictor(0.7, ood_score="energy")
    program = torch.export.load(exported / "decision.pt2").module()
    names = ("predicted", "confidence", "probabilities", "accepted", "outlier_scores", "ood_score", "acceptance")
    for x in (parts.test, parts.test[:1], torch.randint(255, (1500, 1, 8, 8), dtype=torch.uint8)):
        found, decision = dict(zip(names, program(x))), predictor(x)
        agrees(found, decision, predictor.threshold)
        torch.testing.assert_close(found["outlier_scores"], decision.predictions.columns(), atol=1e-4, rtol=1e-4)


def test_a_plain_network_with_a_confidence_threshold(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    predictor = Predictor(Ensemble.of(nn.Linear(4, 3)), threshold=0.5)
    x = torch.randn(40, 4)
    assert predictor.export(tmp_path / "plain.onnx", x) == [tmp_path / "plain.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "plain.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert "outlier_scores" not in names
    found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": x.numpy()}))))
    agrees(found, predictor(x), 0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["plain.onnx"]


def test_a_selector_that_reads_the_entropy_and_all_five_scores(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    parts = digits(2)
    predictions = parts.ensemble.predict([parts.test])
    assert predictions.features is not None
    outliers = OutlierScores(("density", "forest", "lof", "neighbors", "svm"), options={"svm": {"components": 32}}).fit(
        predictions.features[:, :100]
    )
    selector = Selector(entropy=True, training=Training(steps=50))
    scores = selector.columns(outliers.score(predictions.features), predictions.probabilities)
    torch.testing.assert_close(scores[:, -1], predictive_entropy(predictions.logits))
    selector.fit(predictions.confidence, scores, torch.arange(500) % 3 > 0).threshold(0.5)
    predictor = Predictor(parts.ensemble, outliers=outliers, selector=selector)
    decision = predictor(parts.test)
    torch.testing.assert_close(decision.acceptance, selector.relaxed(predictions.confidence, scores))
    predictor.export(tmp_path / "p.onnx", parts.test[:2])
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": parts.test.numpy()}))))
    agrees(found, decision, predictor.threshold)
    torch.testing.assert_close(found["acceptance"], decision.acceptance, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("coverage", [0.0, 1.0])
def test_infinite_thresholds_are_exported(tmp_path: Path, coverage: float) -> None:
    ensemble, x = Ensemble.of(nn.Linear(4, 3)), torch.randn(9, 4)
    selector = ConfidenceSelector().fit(torch.rand(10))
    selector.threshold(coverage)
    predictor = Predictor(ensemble, selector=selector)
    predictor.export(tmp_path / "p.pt2", x.double().numpy())
    accepted = torch.export.load(tmp_path / "p.pt2").module()(x)[3]
    assert accepted.float().mean() == coverage


def test_what_cannot_be_exported_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = Predictor(Ensemble.of(nn.Linear(4, 3)))
    with pytest.raises(ValueError, match="example is empty"):
        predictor.export(tmp_path / "p.pt2", torch.zeros(0, 4))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        predictor.export(tmp_path / "file" / "p.pt2", torch.zeros(2, 4))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else found(name))
    with pytest.raises(ValueError, match=r"needs onnx and onnxscript: pip install 'calibrant\[onnx\]'"):
        predictor.export(tmp_path / "p.onnx", torch.zeros(2, 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def _file(predictor: Predictor, path: Path, x: Tensor) -> tuple[list[str], list[str]]:
    """Export, compare the decisions, and return the operations outside of the loop over members and in it."""
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    predictor.export(path, x[:2])
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": x.numpy()}))))
    agrees(found, predictor(x), predictor.threshold)
    graph = onnx.load(path).graph
    loops = [node.attribute for node in graph.node if node.op_type == "Scan"]
    bodies = [one.g.node for attributes in loops for one in attributes if one.name == "body"]
    return [node.op_type for node in graph.node], [node.op_type for body in bodies for node in body]


def test_what_a_kill_left_of_an_export_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(predictor: Predictor, example: Tensor, files: list[Path]) -> None:
        for file in files:
            file.write_bytes(b"program")

    monkeypatch.setattr("calibrant.deploy.export._write", write)
    for name in ("own.pt2", "folder/decision.pt2"):
        leftover = tmp_path / name
        leftover = leftover.with_name(f".{leftover.name}.0123abcd.tmp")
        leftover.mkdir(parents=True)
        (leftover / "half").touch()
    network = Predictor(Ensemble.of(nn.Linear(3, 2)))
    network.export(tmp_path / "own.pt2", torch.rand(2, 3))
    network.export(tmp_path / "folder", torch.rand(2, 3))
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert found == ["folder", "folder/decision.onnx", "folder/decision.pt2", "own.pt2"]


def test_members_are_one_loop_however_many_there_are(tmp_path: Path) -> None:
    parts = digits(2)
    few, many = (_file(digits(n).predictor(0.7), tmp_path / f"{n}.onnx", parts.test) for n in (2, 5))
    assert few == many, "the same graph, with longer tensors"
    assert many[0].count("Scan") == 1
    assert "TopK" in many[1], "the detectors are in the loop as well"
    assert len(many[0]) < len(many[1])


def test_layers_that_members_have_in_common_are_outside_of_the_loop(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    head = MeanField(net, init_std=0.1, bayesian=lambda name, owner: name.startswith("3.")).sample(4)
    outside, inside = _file(Predictor(head, threshold=0.5), tmp_path / "head.onnx", torch.rand(30, 1, 8, 8))
    assert "Conv" in outside
    assert "Conv" not in inside
    whole = MeanField(net, init_std=0.1).sample(4)
    outside, inside = _file(Predictor(whole, threshold=0.5), tmp_path / "whole.onnx", torch.rand(30, 1, 8, 8))
    assert "Conv" not in outside
    assert "Conv" in inside


def test_members_that_cannot_be_a_loop_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, 4)
    separate = Ensemble.separate([nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))])
    outside, _ = _file(Predictor(separate, threshold=0.5), tmp_path / "separate.onnx", x)
    assert "Scan" not in outside
    stacked = Ensemble.stack([nn.Linear(4, 3), nn.Linear(4, 3)])
    monkeypatch.setattr("calibrant.deploy.member_loop.scan", lambda *given: 1 / 0)
    outside, _ = _file(Predictor(stacked, threshold=0.5), tmp_path / "refused.onnx", x)
    assert "Scan" not in outside


def test_detectors_of_all_members_are_stacked_or_left_alone() -> None:
    outliers = digits(2).outliers
    stacked, members = outliers.stacked(), outliers.members
    assert stacked is not None
    sizes = [len(member.get_buffer("heads.forest.depth")) for member in members]
    assert stacked["heads.forest.depth"].shape == (2, max(sizes)), "the shorter one is filled up"
    points = torch.randn(30, 24)
    for k, member in enumerate(members):
        own = {name: value[k] for name, value in stacked.items()}
        assert torch.equal(torch.func.functional_call(member, own, (points,)), member(points))
    unequal = OutlierScores(("neighbors",)).fit(torch.randn(2, 20, 3))
    unequal.members[1].references.fit(torch.randn(10, 3))
    assert unequal.stacked() is None, "reference points cannot be added"
