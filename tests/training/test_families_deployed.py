"""Every family behind rules, early stopping and a real kill: nothing after training knows which one it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from calibrant.config.loading import load_settings
from calibrant.deploy import EarlyStopping, load
from calibrant.deploy.deploying import predictor_of
from calibrant.selective import SIRC, Trust
from calibrant.training import TrainingData, Workspace, open_data

sys.path.insert(0, str(Path(__file__).parent))
import test_families as families
import test_resume as resume

RUNS = {**families.FAMILIES, "mean_field": ()}
MEMBERS = 8
LARGER = (f"posterior.members={MEMBERS}", "backbone.name=mlp-32", "fit.rate=0.03", "fit.epochs=4")
RULES = {"trust": Trust, "sirc": SIRC}
KILLED_IN = {"ivon": "fit", "deep_ensemble": "finetune", "swag": "finetune", "laplace": "fit"}
STAGES = {"fit": "fit-CBNN", "finetune": "fine-tune-CBNN-OCM"}


@pytest.fixture(scope="module")
def data() -> TrainingData:
    whole, some = open_data(load_settings("embedded").data, seed=0), torch.arange(200)
    assert whole.uncertainty is not None
    parts = (whole.train.subset(some), whole.validation.subset(some))
    return TrainingData(*parts, uncertainty=whole.uncertainty.subset(some))


@pytest.fixture(params=sorted(RUNS))
def space(request: pytest.FixtureRequest, data: TrainingData) -> Workspace:
    size = (f"posterior.options.size={MEMBERS}",) if request.param == "deep_ensemble" else ()
    return families.workspace(data, None, *RUNS[request.param], *size, *LARGER)


def test_rules_are_fitted_behind_a_family_and_are_saved_with_its_members(space: Workspace, tmp_path: Path) -> None:
    inputs = space.data.validation.take(torch.arange(50))[0]
    for name, kind in RULES.items():
        ruled = space.with_settings("calibrator.name=temperature", f"rule.name={name}")
        selection = ruled.selection("BNN")
        assert isinstance(selection.selector, kind)
        predictor = predictor_of(ruled, "BNN", selection)
        decision = predictor(inputs)
        assert decision.accepted.any()
        torch.testing.assert_close(
            decision.acceptance, selection.predictions["validation"].acceptance[:50], rtol=1e-3, atol=1e-4
        )
        again = load(predictor.save(tmp_path / name))(inputs)
        assert torch.equal(again.acceptance, decision.acceptance)
        assert torch.equal(again.probabilities, decision.probabilities)


@pytest.mark.parametrize("family", ["swag", "laplace", "ivon", "deep_ensemble"])
def test_the_onnx_file_of_a_family_decides_the_same(family: str, data: TrainingData, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    space = families.workspace(data, None, *RUNS[family], "calibrator.name=temperature", "rule.name=trust")
    predictor, inputs = predictor_of(space, "BNN", space.selection("BNN")), data.validation.take(torch.arange(50))[0]
    predictor.export(tmp_path / "predictor.onnx", inputs[:2])
    session = onnxruntime.InferenceSession(tmp_path / "predictor.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, map(torch.from_numpy, session.run(None, {"x": inputs.numpy()}))))
    decision = predictor(inputs)
    torch.testing.assert_close(found["acceptance"], decision.acceptance, rtol=0, atol=1e-5)
    torch.testing.assert_close(found["probabilities"], decision.probabilities, rtol=0, atol=1e-5)
    assert torch.equal(found["predicted"], decision.predicted)
    clear = (decision.acceptance - predictor.threshold).abs() > 1e-5
    assert torch.equal(found["accepted"][clear], decision.accepted[clear])


def test_early_stopping_settles_on_the_decisions_of_all_members(space: Workspace) -> None:
    predictor = predictor_of(space, "BNN", space.selection("BNN")).at_coverage(0.6)
    inputs = space.data.validation.take(torch.arange(100))[0]
    full, early = predictor(inputs), predictor(inputs, early=EarlyStopping(error=0.01))
    assert 3 <= int(early.members.min()) <= int(early.members.max()) <= MEMBERS
    same = (full.predicted == early.predicted) & (full.accepted == early.accepted)
    assert same.float().mean() >= 0.95
    ran = early.members == MEMBERS
    torch.testing.assert_close(early.probabilities[ran], full.probabilities[ran])


@pytest.mark.parametrize("family", sorted(KILLED_IN))
def test_killed_a_family_ends_with_the_same_bytes(family: str, tmp_path: Path) -> None:
    stage = KILLED_IN[family]
    overrides = (*RUNS[family], *(f"{other}.epochs=2" for other in STAGES if other != stage))
    whole = resume.final(resume.workspace(tmp_path / "whole", "engine.checkpoint_steps=null", *overrides))
    resume.kill_within(tmp_path / "parts", STAGES[stage], 2, *overrides)
    assert resume.final(resume.workspace(tmp_path / "parts", *overrides)) == whole
