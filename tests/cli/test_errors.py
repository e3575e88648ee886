from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from commands import Caller, call, run

import calibrant
from calibrant import InputError, cli
from calibrant.cli.errors import GateFailed, Stopped, explain, resumable
from calibrant.data import DataError
from calibrant.files import DivergedError, RunError

__all__ = ["call"]


@pytest.mark.parametrize(("arguments", "allowed"), [([], "[]"), (["train"], "['pydantic']")])
def test_help_starts_without_the_heavy_packages(arguments: list[str], allowed: str) -> None:
    """Newer typers use pydantic themselves to parse the options of a command."""
    code = (
        f"import sys; sys.argv = ['calibrant', *{arguments}, '--help']\n"
        "from calibrant.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'yaml', 'sklearn', 'rich', 'lightning_fabric', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() in ("[]", allowed)
    assert "Examples:" in done.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_example_in_the_help_parses(name: str) -> None:
    lines = cli.COMMANDS[name].EXAMPLES.replace("\\\n", " ").strip().splitlines()
    command = typer.main.get_command(cli.app).commands[name]  # type: ignore[attr-defined]
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        words = words[: words.index(">")] if ">" in words else words
        start = words.index("calibrant")
        assert words[start + 1] == name
        command.make_context(name, words[start + 2 :])


def test_every_command_has_help_with_examples(call: Caller) -> None:
    for name, module in cli.COMMANDS.items():
        printed = call(name, "--help")
        assert module.EXAMPLES.strip().splitlines()[0] in printed.out


def test_the_version(call: Caller) -> None:
    assert call("--version").out == f"calibrant {calibrant.__version__}\n"


@pytest.mark.parametrize(
    ("error", "sentence", "code"),
    [
        (InputError("settings: a\nb"), "settings: a b", 2),
        (DataError("x.npz does not exist"), "x.npz does not exist", 2),
        (RunError("training diverged"), "training diverged", 2),
        (OSError(28, "No space left on device", "/x"), "/x: No space left on device", 2),
        (MemoryError(), "out of memory", 2),
        (KeyboardInterrupt(), "stopped", 130),
        (Stopped("to go on: x", 143), "to go on: x", 143),
        (ModuleNotFoundError("No module named 'ray'", name="ray"), "No module named 'ray'; install", 2),
        (ModuleNotFoundError("No module named 'their'", name="their"), "No module named 'their'; install", 2),
        (ModuleNotFoundError("No module named 'calibrant.x'", name="calibrant.x"), "unexpected ModuleNotFound", 1),
        (GateFailed("ece 0.12 is above 0.05"), "ece 0.12 is above 0.05", 3),
        (DivergedError("training diverged"), "training diverged", 4),
        (KeyError("k"), "unexpected KeyError: 'k'", 1),
        (
            UnicodeEncodeError("utf-8", "caf\udce9.png", 3, 4, "surrogates not allowed"),
            "a name holds what is no text",
            2,
        ),
        (
            UnicodeEncodeError("ascii", "caf\u00e9", 3, 4, "ordinal not in range(128)"),
            "unexpected UnicodeEncodeError",
            1,
        ),
    ],
)
def test_errors_become_a_sentence_and_a_code(error: BaseException, sentence: str, code: int) -> None:
    found = explain(error)
    assert found[0].startswith(sentence)
    assert found[1] == code


def test_an_argument_that_is_no_text_is_refused_before_the_work(call: Caller, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.csv")
    (tmp_path / name).write_text("confidence,correct\n0.5,1\n")
    refused = call.refused("audit", tmp_path / name, "--out", tmp_path / "page.html")
    assert "caf\\udce9.csv' is no text in UTF-8; rename the file" in refused
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_stop_says_how_to_go_on(raised: BaseException, code: int) -> None:
    with pytest.raises(Stopped, match="again") as stop, resumable(lambda: "again"):
        raise raised
    assert stop.value.code == code
    with pytest.raises(SystemExit), resumable(lambda: "again"):
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trian"], "No such command 'trian'"),
        (["train"], "Missing option '--out'"),
        (["train", "--out", "r", "--shceme", "FNN"], "No such option: --shceme"),
        (["train", "--out", "r", "-o", "fit.epoch=3"], "fit.epoch does not exist; did you mean fit.epochs?"),
        (["train", "--out", "r", "-o", "fit.epochs=many"], "setting fit.epochs cannot be 'many'"),
        (["train", "--out", "r", "-o", "fit.schedule=cosin"], "did you mean cosine?"),
        (["train", "--out", "r", "--profile", "papr"], "profile 'papr' does not exist; did you mean paper"),
        (["train", "--out", "r", "--settings", "nowhere.yaml"], "settings file nowhere.yaml cannot be read"),
        (["train", "--out", "r", "--scheme", "SCBN"], "scheme 'SCBN' does not exist; did you mean"),
        (["train", "--out", "r", "--device", "cuda:77"], "device 'cuda:77' is not there"),
        (["train", "--out", "r", "--data", "nowhere.npz"], "nowhere.npz does not exist"),
        (["train", "--out", "r", "--data", "cifar1000"], "'cifar1000' is neither a source"),
        (["train", "--out", "r", "--backbone", "wrm-16-1"], "did you mean wrn-DEPTH-WIDTH"),
        (["train", "--out", "r", "--resume"], "r is not a run"),
        (["train", "--out", "r", "--ood", "embedded:never"], "there is no embedded set 'never'"),
        (["train", "--out", "r", "--resume", "--seed", "3"], "--resume takes all settings from the run"),
        (["demo", "--resume", "--out", "r"], "r is not a run"),
        (["sweep", "--out", "r", "--resume", "--param", "lambda=1"], "--resume takes all settings from the run"),
        (["sweep", "--out", "r", "--resume", "--seed", "3"], "--resume takes all settings from the run"),
        (["evaluate", "r"], "r does not exist"),
        (["report", "."], ". is not a run"),
        (["predict", "r", "in.npz", "--out", "x.csv"], "r does not exist"),
        (["info", "settings", "fitt"], "did you mean fit?"),
        (["info", "profiles", "smal"], "did you mean small"),
        (["data", "no/such/folder"], "'no/such/folder' is neither a source"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in call.refused(*arguments)


def test_an_output_folder_that_cannot_be_written_is_refused(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    inside = tmp_path / "file" / "run"
    assert "cannot be written" in call.refused("train", "--out", inside)
    assert "cannot be written" in call.refused("demo", "--out", inside)
    assert "cannot be written" in call.refused("audit", "x.csv", "--out", inside / "page.html")
    if os.geteuid() != 0:  # to root nothing is read-only
        (tmp_path / "locked").mkdir(mode=0o500)
        assert "cannot be written" in call.refused("train", "--out", tmp_path / "locked" / "run")


def test_ocm_without_outliers_is_refused(call: Caller, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.random.default_rng(0).normal(size=(50, 4)), y=np.arange(50) % 2)
    arguments = ["train", "--data", tmp_path / "own.npz", "-o", "data.validation=10", "--out", tmp_path / "r"]
    assert "SCBNN-OCM needs unlabeled outliers" in call.refused(*arguments)
    assert not (tmp_path / "r" / "stages").exists()


def test_a_process_of_its_own_exits_with_the_code_and_no_traceback(tmp_path: Path) -> None:
    done = run("train", "--out", "r", "-o", "fit.rte=1", cwd=tmp_path, code=2)
    assert done.stderr == "calibrant: override: setting fit.rte does not exist; did you mean fit.rate?\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_tracebacks_are_shown_on_request(call: Caller, tmp_path: Path) -> None:
    printed = call("--debug", "evaluate", tmp_path / "r", code=2)
    assert "Traceback" in printed.err
    assert printed.err.splitlines()[-1].startswith("calibrant: ")


def test_a_worker_that_died_is_a_failure_and_no_bug() -> None:
    class WorkerError(RunError):
        """As raised for a process that was killed."""

    assert explain(WorkerError("a worker process was ended from outside")) == (
        "a worker process was ended from outside",
        2,
    )
