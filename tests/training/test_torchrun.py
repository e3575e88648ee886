"""Two processes under torchrun: equal results on both, one validation, and a killed run that resumes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from calibrant.config.groups import EngineSettings
from calibrant.training.distributed import gather_with_gradients, make_fabric

SCRIPT = Path(__file__).parents[1] / "distributed_training.py"


def launch(mode, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(SCRIPT), mode, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    first = launch("first", folder)
    assert "SIGKILL" in first.stderr or "-9" in first.stderr, first.stderr
    assert first.returncode != 0
    assert not list((folder / "killed").glob("stages/*/result.json"))
    second = launch("second", folder)
    assert second.returncode == 0, second.stderr
    return folder


def ranks(folder):
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_ranks_end_with_equal_parameters_buffers_and_metrics(runs):
    first, second = ranks(runs / "whole")
    assert len(first) == 2
    assert first == second
    assert any("running_mean" in name for name in first[0]["state"])


def test_mc_dropout_ends_alike_on_both_ranks(runs):
    first, second = ranks(runs / "dropout")
    assert first == second
    assert first[0]["state"]["module.module.head.dropout.units"] == [4.0]


@pytest.mark.parametrize(("family", "fitted"), [("swag", "squares"), ("laplace", "std")])
def test_families_fitted_to_the_iterates_or_after_training_end_alike_on_both_ranks(runs, family, fitted):
    first, second = ranks(runs / family)
    assert first == second
    assert all(max(stage["state"][fitted]) > 0 for stage in first)


@pytest.mark.parametrize("name", ["ivon", "networks"])
def test_other_families_end_alike_on_both_ranks(runs, name):
    first, second = ranks(runs / name)
    assert first == second
    spread = {value for n, values in first[0]["state"].items() if "rho" in n for value in values}
    assert len(spread) > 50 if name == "ivon" else not spread


def weights(folder):
    return load_file(next(folder.glob("stages/fine-tune-CBNN-OCM-*/model.safetensors")))


def test_a_killed_run_resumes_to_the_same_weights(runs):
    whole, killed = weights(runs / "whole"), weights(runs / "killed")
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    metrics = [next((runs / name).glob("stages/fit-CBNN-*/metrics.csv")).read_text() for name in ("whole", "killed")]
    assert metrics[0] == metrics[1]


def test_the_saved_model_is_the_one_that_was_trained(runs):
    state = ranks(runs / "whole")[0][1]["state"]
    saved = weights(runs / "whole")
    assert all(torch.equal(saved[name].double().flatten(), torch.tensor(state[name]).double()) for name in saved)


def test_validation_sees_every_example_once(runs, monkeypatch):
    """Recomputed here by one process from the saved weights."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import distributed_training

    space = distributed_training.workspace(runs / "whole")
    row = space.history("CBNN")[-1]
    from calibrant.config.schemes import Scheme
    from calibrant.training.train_stage import StageTask

    task = StageTask(space.model("CBNN"), space.data, Scheme.parse("CBNN"), space.settings, space.fabric)
    assert task.validate()["accuracy"] == pytest.approx(row["validation_accuracy"], abs=1e-6)
    assert task.validate()["cross_entropy"] == pytest.approx(row["validation_cross_entropy"], rel=1e-4)


def test_gathering_the_regularizer_is_another_objective(runs):
    local, gathered = weights(runs / "whole"), weights(runs / "gathered")
    assert any(not torch.equal(local[name], gathered[name]) for name in local)
    first, second = ranks(runs / "gathered")
    assert first == second


def test_the_gradient_through_gathering_is_that_of_one_process(runs):
    for rank in (0, 1):
        averaged, alone = json.loads((runs / f"gradient{rank}.json").read_text())
        assert averaged == pytest.approx(alone, rel=1e-5)


def test_with_one_process_gathering_is_free():
    value = torch.ones(3, requires_grad=True)
    assert gather_with_gradients(value, make_fabric(EngineSettings(device="cpu"))) is value
