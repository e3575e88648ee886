from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import TINY, TINY_OPTIONS, Caller, call, read_rows, run, start
from PIL import Image

from calibrant import metrics
from calibrant.data import open_source
from calibrant.evaluation import Evaluation
from calibrant.files import read_csv

__all__ = ["call"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two schemes, and what `train --json` printed."""
    out = tmp_path_factory.mktemp("cli") / "run"
    done = run("train", *TINY_OPTIONS, "-s", "SCBNN-OCM", "-s", "fnn", "--out", out, "--json")
    assert "fine-tune CBNN-OCM" in done.stderr
    return out, done.stdout


def test_train_leaves_a_whole_run(trained: tuple[Path, str]) -> None:
    out, printed = trained
    found = json.loads(printed)
    assert set(found["predictors"]) == {"FNN", "SCBNN-OCM"}
    assert {(row["system"], row["wanted_coverage"], row["ood"]) for row in found["rows"]} == {
        (system, coverage, ood) for system in found["predictors"] for coverage in (1.0, 0.5) for ood in ("near", "far")
    }
    assert len(read_rows(out / "table.csv")) == 8
    assert {path.name for path in out.iterdir()} == {
        *("run.json", "settings.yaml", "splits.json", "stages", "evaluations", "predictors", "table.csv")
    }
    evaluation = Evaluation.load(out / "evaluations" / "FNN.npz")
    first = found["rows"][0]
    assert first["accuracy"] == pytest.approx(evaluation.id.correct.mean())
    error = float(metrics.expected_calibration_error(evaluation.id.confidence, evaluation.id.correct))
    assert first["ece"] == pytest.approx(error)


def test_evaluate_prints_a_table(trained: tuple[Path, str]) -> None:
    done = run("evaluate", trained[0])
    assert "near" in done.stdout
    assert "SCBNN-OCM" in done.stdout
    assert "95 % intervals" in done.stdout


def test_evaluate_gives_the_numbers_of_training_and_measures_other_data(
    trained: tuple[Path, str], call: Caller, tmp_path: Path
) -> None:
    out, printed = trained
    before = json.loads(printed)["rows"]
    again = json.loads(call("evaluate", out, "--json").out)["rows"]
    assert again == before
    test = open_source("embedded", split="test")
    np.savez(tmp_path / "ten.npz", x=test.inputs[:10].numpy(), y=test.labels[:10].numpy())
    ten = json.loads(call("evaluate", out, "--data", tmp_path / "ten.npz", "-s", "FNN", "--json").out)["rows"]
    known = Evaluation.load(out / "evaluations" / "FNN.npz").id
    assert {row["n_id"] for row in ten} == {10}
    assert ten[0]["accuracy"] == pytest.approx(known.correct[:10].mean())
    near = call("evaluate", out, "--ood", "embedded:near", "-s", "FNN", "--json", "--out", tmp_path / "t.csv").out
    assert json.loads(near)["rows"][0]["auroc"] == pytest.approx(before[0]["auroc"])
    assert (tmp_path / "t.csv").exists()


def test_evaluate_refuses_data_that_do_not_fit(trained: tuple[Path, str], call: Caller, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", x=np.zeros((20, 5), np.float32), y=np.zeros(20, int))
    assert "but the model was trained on (1, 8, 8)" in call.refused(
        "evaluate", trained[0], "--data", tmp_path / "wide.npz"
    )
    assert "has no labels" in call.refused("evaluate", trained[0], "--data", "embedded:near")
    assert "no evaluation of CFNN" in call.refused("evaluate", trained[0], "-s", "CFNN")


def test_predict_streams_a_folder_to_csv(trained: tuple[Path, str], tmp_path: Path) -> None:
    digits = open_source("embedded", split="test")
    for index in range(12):
        Image.fromarray(digits.inputs[index, 0].numpy()).save(tmp_path / f"{index:02}.png")
    source, out = f"folder:{tmp_path}?color=gray", tmp_path / "made" / "p.csv"
    done = run("predict", trained[0], source, "--scheme", "SCBNN-OCM", "--out", out, "--batch", 5)
    rows = read_rows(out)
    known = Evaluation.load(trained[0] / "evaluations" / "SCBNN-OCM.npz").id
    assert [row["id"] for row in rows] == [f"{index:02}.png" for index in range(12)]
    assert [int(row["predicted"]) for row in rows] == known.predicted[:12].tolist()
    assert [float(row["confidence"]) for row in rows] == pytest.approx(known.confidence[:12].tolist(), abs=1e-5)
    assert [float(row["acceptance"]) for row in rows] == pytest.approx(known.selection[:12].tolist(), abs=1e-4)
    accepted = sum(row["accepted"] == "True" for row in rows)
    assert f"12 inputs, {accepted} accepted" in done.stdout
    assert {"outlier_density", "outlier_neighbors"} <= set(rows[0])
    assert [path.name for path in out.parent.iterdir()] == ["p.csv"]


def test_predict_to_parquet_at_a_coverage_and_early(trained: tuple[Path, str], call: Caller, tmp_path: Path) -> None:
    counts = {}
    for coverage in (0.2, 0.9):
        out = tmp_path / f"{coverage}.parquet"
        arguments = ["-s", "FNN", "--coverage", coverage, "--probabilities", "--out", out, "--json"]
        printed = json.loads(call("predict", trained[0], "embedded", *arguments).out)
        table = pq.read_table(out).to_pydict()
        assert len(table["id"]) == printed["inputs"] == 1797
        assert sum(table["accepted"]) == printed["accepted"]
        assert np.sum([table[f"p_{c}"] for c in range(10)], axis=0) == pytest.approx(np.ones(1797), abs=1e-5)
        counts[coverage] = printed["accepted"]
    assert counts[0.2] < 0.5 * 1797 < counts[0.9]
    folder = trained[0] / "predictors" / "SCBNN-OCM"
    early = json.loads(call("predict", folder, "embedded", "--early", "--out", tmp_path / "e.csv", "--json").out)
    assert 3 <= early["mean_members"] <= 4


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["embedded", "--out", "p.csv"], "choose one with --scheme"),
        (["embedded", "--scheme", "BNN", "--out", "p.csv"], "there is no BNN"),
        (["embedded", "--scheme", "FNN", "--out", "p.txt"], "must end in .csv or .parquet"),
        (["nowhere.parquet", "--scheme", "FNN", "--out", "p.csv"], "nowhere.parquet"),
        (["wide.npz", "--scheme", "FNN", "--out", "p.csv"], "but the model was trained on (1, 8, 8)"),
        (["embedded", "--scheme", "FNN", "--out", "wide.npz/p.csv"], "cannot be written"),
        (["embedded", "--scheme", "FNN", "--coverage", "2", "--out", "p.csv"], "--coverage"),
    ],
)
def test_predict_refuses_in_one_sentence_and_leaves_nothing(
    trained: tuple[Path, str],
    call: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("wide.npz", x=np.zeros((20, 5), np.float32))
    assert sentence in call.refused("predict", trained[0], *arguments)
    assert [path.name for path in tmp_path.iterdir()] == ["wide.npz"]


def test_report_writes_the_page(trained: tuple[Path, str], call: Caller, tmp_path: Path) -> None:
    done = call("report", trained[0], "--out", tmp_path / "page.html", "--title", "Two schemes")
    assert done.out.strip() == f"The page: {(tmp_path / 'page.html').as_uri()}"
    page = (tmp_path / "page.html").read_text()
    assert "Two schemes" in page
    assert "calibrant train" in page
    assert "data:image/png;base64" in page


def test_a_finished_run_is_not_trained_again_and_others_are_refused(trained: tuple[Path, str], call: Caller) -> None:
    out, printed = trained
    results = {path: path.stat().st_mtime_ns for path in out.glob("stages/*/result.json")}
    again = call("train", "--resume", "--out", out, "--json")
    assert json.loads(again.out) == json.loads(printed)
    assert results == {path: path.stat().st_mtime_ns for path in out.glob("stages/*/result.json")}
    assert "fit.epochs=3, not 4" in call.refused("train", *TINY_OPTIONS, "-o", "fit.epochs=4", "--out", out)
    assert "calibrant train --resume" in call.refused("train", *TINY_OPTIONS, "--seed", "1", "--out", out)


def test_settings_come_from_profile_file_and_overrides_in_that_order(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("fit: {rate: 0.05, epochs: 2}\n")
    given = ["--profile", "embedded", "--settings", tmp_path / "own.yaml", *TINY_OPTIONS, "-o", "fit.epochs=1"]
    call("train", *given, "--scheme", "FNN", "--backbone", "mlp-8", "--seed", "5", "--out", tmp_path / "run")
    from calibrant.runs.run import Run

    settings = Run(tmp_path / "run").settings
    assert (settings.fit.rate, settings.fit.epochs, settings.fit.batch_size) == (0.05, 1, 64)
    assert (settings.backbone.name, settings.seed) == ("mlp-8", 5)


def test_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    out, rng = tmp_path / "run", np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(400, 8)), y=rng.integers(0, 3, 400))
    long = [*TINY_OPTIONS, "-o", "fit.epochs=200", "-o", "fit.validate_every=0"]
    process = start("train", *long, "--data", tmp_path / "own.npz", "--scheme", "FNN", "--out", out)
    wait_for(lambda: any(out.glob("stages/fit-*/metrics.csv")), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == f"calibrant: stopped; to resume: calibrant train --resume --out {out}"
    assert "Traceback" not in err
    (stage,) = out.glob("stages/fit-*")
    assert any(stage.glob("checkpoint-*.safetensors"))
    done = run("train", "--resume", "--out", out, "--json")
    assert json.loads(done.stdout)["predictors"]
    rows = read_csv(stage / "metrics.csv")
    assert [row["epoch"] for row in rows] == list(range(1, 201))
    assert not any(stage.glob("checkpoint-*"))


def test_two_processes_train_one_run_and_one_of_them_speaks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(400, 8)), y=rng.integers(0, 3, 400))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "calibrant", "train"]
    command += [*TINY_OPTIONS, "--data", "own.npz", "--scheme", "SFNN", "--out", "run", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["system"] == "SFNN"
    assert done.stderr.count("0/2 fit FNN") == 1
    assert (tmp_path / "run" / "predictors" / "SFNN" / "predictor.json").exists()


def wait_for(condition: object, process: object, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()  # type: ignore[attr-defined]
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_tiny_settings_are_settings() -> None:
    from calibrant.config.loading import load_settings

    assert load_settings(overrides=TINY).backbone.name == "mlp-16"
