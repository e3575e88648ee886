"""What a command says, and its exit code, when a job, a trial or a worker process of it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tasks
from commands import TINY_OPTIONS, Caller, call
from experiment_labs import TINY

from calibrant.cli import errors
from calibrant.files import DivergedError, RunError
from calibrant.runs.failures import worst

__all__ = ["call"]
Job = Callable[[Any, Any], None]
FAILURES = [(tasks.off_by_one, 1), (tasks.diverge, 4), (tasks.misuse, 2), (tasks.fill_the_disk, 2)]


def report(sentence: str) -> str:
    """The bug report that `sentence` names."""
    found = re.search(r"please report it with (\S+)$", sentence)
    assert found, sentence
    return Path(found[1]).read_text()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("job", "code"), FAILURES)
def test_a_failed_job_of_reproduce(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, code: int, workers: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("calibrant.studies.jobs.execute", job)
    options = [part for override in TINY for part in ("-o", override)]
    folders = ["--out", tmp_path / "results", "--runs", tmp_path / "runs"]
    sentence = call.refused("reproduce", "reliability", *options, "--workers", workers, *folders, code=code)
    assert re.search(r"calibrant: \d+ of \d+ jobs failed: ", sentence)
    if code == 1:
        assert "IndexError: off by one" in sentence
        assert f"in {job.__name__}" in report(sentence)
    else:
        assert "bug" not in sentence


@pytest.mark.parametrize(("job", "code"), FAILURES)
def test_a_failed_trial_of_sweep(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, code: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("calibrant.training.sweeps.sweep.run_trial", job)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(400, 8)), y=rng.integers(0, 3, 400))
    data = ["--data", tmp_path / "own.npz", "-p", "lambda=0.5"]
    printed = call("sweep", *data, *TINY_OPTIONS, "--out", tmp_path / "s", code=code)
    sentence = printed.err.splitlines()[-1]
    assert sentence.startswith("calibrant: 2 of 2 trials failed, first baseline")
    if code == 1:
        assert "in off_by_one" in report(sentence)


@pytest.mark.parametrize(("job", "code"), FAILURES[:2])
def test_a_failed_worker_of_the_demo(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Job, code: int
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("calibrant.deploy.demo._train_seed", job)
    sentence = call.refused("demo", "--workers", 2, *TINY_OPTIONS, "--out", tmp_path / "d", code=code)
    if code == 1:
        assert "IndexError: off by one; this is a bug of calibrant" in sentence
        assert "in off_by_one" in report(sentence)


def test_of_many_failures_the_worst_decides() -> None:
    bug, diverged, wrong = IndexError("off by one"), DivergedError("diverged"), errors.USERS("x is missing")
    lost = RunError("train, which it needs, did not finish")
    cases = [[lost, wrong, diverged, bug], [lost, diverged, wrong], [wrong, lost], [lost]]
    codes = [errors.explain(worst(case, "3 failed"))[1] for case in cases]
    assert codes == [1, 4, 2, 2]


@pytest.mark.parametrize("option", ["--out", "--runs"])
def test_an_output_of_reproduce_that_is_a_file_is_refused(call: Caller, tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    other = {"--out": "--runs", "--runs": "--out"}[option]
    sentence = call.refused("reproduce", "reliability", option, tmp_path / "file", other, tmp_path / "other")
    assert "file cannot be written: File exists; choose another output folder" in sentence
    assert "cannot be written" in call.refused("sweep", "-p", "lambda=1", "--out", tmp_path / "file")


def test_a_plugin_that_fails_is_blamed_itself(call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin_that_fails.py").write_text("raise ValueError('my plugin is wrong')\n")
    sentence = call.refused("info", "--plugin", "plugin_that_fails")
    assert "plugin plugin_that_fails fails while it is imported (ValueError: my plugin is wrong)" in sentence
    assert "bug of calibrant" not in sentence
    (file,) = tmp_path.glob("calibrant-*.txt")
    assert sentence.endswith(f"its traceback is in {file}")
    assert "plugin_that_fails.py" in file.read_text()


def test_an_error_inside_a_plugin_s_code_is_the_plugin_s(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("calibrant.slots._plugins", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plugin_with_a_bug.py").write_text(
        "def broken(*arguments):\n    return [][0]\nimport calibrant.cli.info\ncalibrant.cli.info._machine = broken\n"
    )
    monkeypatch.setattr("calibrant.cli.info._machine", None)  # put back at the end
    sentence = call.refused("info", "--plugin", "plugin_with_a_bug")
    assert "unexpected IndexError: list index out of range; this is a bug of the plugin plugin_with_a_bug" in sentence
    (file,) = tmp_path.glob("calibrant-*.txt")
    assert "in broken" in file.read_text()
