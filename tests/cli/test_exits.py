"""How commands end: exit codes, signals, pipes, packages that are missing, files that cannot be written."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import TINY_OPTIONS, Caller, call, start

import calibrant
from calibrant import cli
from calibrant.cli import errors, options, train
from calibrant.config.loading import load_settings
from calibrant.data import ArrayData
from calibrant.deploy import Backbone, Predictor
from calibrant.deploy.prediction_tables import predict_table
from calibrant.files import DivergedError, RunError, writable_file
from calibrant.posteriors.ensemble import Ensemble
from calibrant.training import TrainingData, Workspace

__all__ = ["call"]


def shell(line: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`line` in bash, where `calibrant` is this one."""
    program = f'calibrant() {{ {shlex.quote(sys.executable)} -m calibrant "$@"; }}\n{line}'
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=120, cwd=cwd)


@pytest.mark.parametrize("command", ["--help", "info settings --json"])
def test_a_reader_that_stops_early_is_no_error(command: str) -> None:
    done = shell(f"calibrant {command} | head -1 > /dev/null; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


def test_after_the_reader_has_gone_the_exit_code_is_still_that_of_the_answer(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(
        "from calibrant.cli import errors\n"
        "def app(**settings):\n"
        "    for line in range(100000): print(line)\n"
        "    raise errors.GateFailed('ece 0.12 is above 0.05')\n"
        "errors.run(app)\n"
    )
    line = f"{shlex.quote(sys.executable)} gate.py | head -1; exit ${{PIPESTATUS[0]}}"
    done = shell(line, cwd=tmp_path)
    assert (done.stdout, done.returncode) == ("0\n", 3)
    assert done.stderr == "calibrant: ece 0.12 is above 0.05\n"


@pytest.mark.parametrize("streams", [">&-", ">&- 2>&-"])
def test_a_closed_output_is_no_error(streams: str) -> None:
    done = shell(f"calibrant info settings fit {streams}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("command", ["info schemes", "--help"])
def test_an_output_that_is_full_is_named(command: str) -> None:
    done = shell(f"calibrant {command} > /dev/full")
    assert done.returncode == 2
    assert done.stderr == "calibrant: standard output: No space left on device\n"


def test_a_bug_of_ours_leaves_its_traceback_in_a_file_that_is_named(
    call: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def broken(*arguments: object) -> None:
        raise IndexError("off by one")

    monkeypatch.setattr("calibrant.cli.info._machine", broken)
    sentence = call.refused("info", code=1)
    assert sentence.startswith(
        "calibrant: unexpected IndexError: off by one; this is a bug of calibrant: please report"
    )
    (file,) = tmp_path.iterdir()
    assert sentence.endswith(str(file))
    text = file.read_text()
    assert "Traceback" in text
    assert "in broken" in text
    assert calibrant.__version__ in text
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert call.refused("info", code=1).endswith("with what CALIBRANT_DEBUG=1 shows")


def test_our_own_error_is_a_value_error_of_the_user() -> None:
    assert issubclass(calibrant.InputError, ValueError)
    assert errors.explain(calibrant.InputError("x is missing")) == ("x is missing", 2)


def test_a_value_error_that_is_not_ours_is_a_bug() -> None:
    sentence, code = errors.explain(ValueError("operands could not be broadcast together"))
    assert sentence.startswith("unexpected ValueError: operands could not be broadcast together; this is a bug")
    assert code == 1


def test_every_value_error_that_we_raise_is_an_input_error() -> None:
    source = Path(calibrant.__file__).parent
    assert [str(file) for file in source.rglob("*.py") if re.search(r"raise ValueError\b", file.read_text())] == []


def diverging(call: Caller, folder: Path, *more: str) -> str:
    rng = np.random.default_rng(0)
    np.savez(folder / "own.npz", x=rng.normal(size=(400, 8)), y=rng.integers(0, 3, 400))
    rates = ["-o", "fit.rate=1e30", "-o", "fit.clip_norm=null"]
    return call.refused(
        "train", *TINY_OPTIONS, *rates, *more, "--data", folder / "own.npz", "--out", folder / "r", code=4
    )


@pytest.mark.parametrize("scheme", ["FNN", "CFNN"])
def test_a_training_that_diverged_has_its_own_exit_code(call: Caller, tmp_path: Path, scheme: str) -> None:
    assert "diverged" in diverging(call, tmp_path, "--scheme", scheme)


def test_in_python_it_has_its_own_error(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = ArrayData(*map(__import__("torch").from_numpy, (rng.normal(size=(80, 4)).astype("f"), np.arange(80) % 2)))
    settings = load_settings(overrides=["backbone.name=mlp-4", "fit.epochs=2", "fit.rate=1e30", "engine.device=cpu"])
    with pytest.raises(DivergedError, match="diverged") as caught:
        Workspace(TrainingData(data, data), settings.with_("fit.clip_norm=null")).history("FNN")
    assert isinstance(caught.value, RunError)


BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def without(missing: set[str], code: str) -> subprocess.CompletedProcess[str]:
    """`code` in a process where `missing` packages are not installed."""
    program = BLOCKED.format(missing=missing) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)


APP = "import runpy; sys.argv = ['calibrant', {}]; runpy.run_module('calibrant', run_name='__main__')"
EXTRAS = {"typer", "pydantic", "yaml", "rich", "safetensors", "lightning_fabric", "pyarrow", "filelock", "altair"}


@pytest.mark.parametrize("arguments", ["'--help'", "'train', '--out', 'r'", "'info'"])
def test_the_core_install_says_what_to_install(arguments: str) -> None:
    done = without(EXTRAS, APP.format(arguments))
    assert done.returncode == 2
    assert done.stderr.startswith("calibrant: the command line needs typer, which is not installed: pip install")
    assert done.stderr.endswith("pip install 'calibrant[app]'\n")


def test_with_typer_alone_a_command_says_what_to_install() -> None:
    """Newer typers need pydantic and rich themselves, so the packages beneath are missing."""
    done = without({"lightning_fabric", "safetensors"}, APP.format("'train', '--out', '/tmp/never', '-s', 'FNN'"))
    assert done.returncode == 2
    assert re.fullmatch(
        r"calibrant: No module named '\w+'; install what this needs with: pip install 'calibrant\[app\]'\n", done.stderr
    )


def test_the_estimator_of_the_core_install_says_what_to_install() -> None:
    done = without(EXTRAS, "from calibrant import CalibratedClassifier")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: CalibratedClassifier needs ")
    assert last.endswith(": pip install 'calibrant[app]'")


def test_the_script_of_the_package_can_say_it() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'calibrant = "calibrant.__main__:main"' in project


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_shells_can_complete(name: str) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [sys.executable, "-m", "calibrant", "--show-completion", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "_CALIBRANT_COMPLETE" in done.stdout
    asked = {"_CALIBRANT_COMPLETE": "complete_bash", "COMP_WORDS": "calibrant ev", "COMP_CWORD": "1"}
    done = subprocess.run(command[:3], capture_output=True, text=True, env={**os.environ, **asked})
    assert done.stdout.split() == ["evaluate"]


def test_a_spec_with_options_is_quoted_wherever_it_is_shown(call: Caller, tmp_path: Path) -> None:
    helps = [call(name, "--help").out for name in cli.COMMANDS]
    shown = "\n".join([*helps, " ".join(call("data", "--root", tmp_path).out.split())])
    for found in re.finditer(r"\S*\w\?[a-z]+=", shown):
        assert found[0].startswith("'"), found[0]
    (tmp_path / "t.csv").write_text("customer_id,x,label\n1,2,a\n2,3,b\n")
    out = call("data", tmp_path / "t.csv", "--ignore", "customer_id").out
    line = out.splitlines()[-1].removeprefix("To train on it: ")
    assert shlex.split(line)[:3] == ["calibrant", "train", "--data"]
    assert "1 column ignored: customer_id" in out
    assert "--label and --ignore are for the columns" in call.refused("data", "--label", "x")


def test_before_there_is_anything_to_resume_none_is_offered(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*arguments: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("calibrant.deploy.pipeline.train_run", stopped)
    monkeypatch.setattr("calibrant.deploy.demo.run_demo", stopped)
    monkeypatch.setattr("calibrant.training.sweeps.sweep.run_sweep", stopped)
    out = tmp_path / "a run"
    nothing = "calibrant: stopped before anything was kept; start the command again"
    assert call.refused("train", "--out", out, code=130) == nothing
    assert call.refused("demo", "--out", out, code=130) == nothing
    assert call.refused("sweep", "-p", "lambda=1", "--out", out, code=130) == nothing
    out.mkdir()
    (out / "run.json").touch()
    (out / "sweep.json").touch()
    for name, more in (("train", ()), ("demo", ()), ("sweep", ("-p", "lambda=1"))):
        sentence = call.refused(name, *more, "--out", out, code=130)
        assert sentence == f"calibrant: stopped; to resume: calibrant {name} --resume --out '{out}'"
    assert train.options.after_stop is options.after_stop


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """SIGHUP has its effect, also on processes that are started, even if these tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangs_up")
def test_a_closed_terminal_ends_with_a_sentence_and_a_checkpoint(tmp_path: Path) -> None:
    out, rng = tmp_path / "run", np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.normal(size=(400, 8)), y=rng.integers(0, 3, 400))
    process = start(
        "train", *TINY_OPTIONS, "-o", "fit.epochs=2000", "--data", tmp_path / "own.npz", "-s", "FNN", "--out", out
    )
    while process.poll() is None and not any(out.glob("stages/fit-*/metrics.csv")):
        time.sleep(0.02)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 129, err
    assert err.splitlines()[-1] == f"calibrant: stopped; to resume: calibrant train --resume --out {out}"
    assert any(out.glob("stages/fit-*/checkpoint-*.safetensors"))


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_where_nothing_can_be_resumed_ends_with_a_sentence(
    call: Caller, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    def ended(*arguments: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(1)

    before = signal.getsignal(number)
    monkeypatch.setattr("calibrant.cli.info._machine", ended)
    assert call.refused("info", code=code) == "calibrant: stopped"
    signal.signal(number, before)


def predictor() -> Predictor:
    backbone = Backbone("mlp-4", (3,), 2)
    return Predictor(Ensemble.of(backbone.build()), backbone=backbone)


def test_a_folder_is_refused_as_a_file_before_the_work(call: Caller, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 3), np.float32))
    folder = tmp_path / "answers.csv"
    folder.mkdir()
    with pytest.raises(ValueError, match=r"answers\.csv is a folder; name a file in it"):
        writable_file(folder)

    class Untouched(Predictor):
        def forward(self, *arguments: object, **settings: object) -> None:  # type: ignore[override]
            raise AssertionError("predicted before the file was checked")

    asked = Untouched(predictor().ensemble, backbone=predictor().backbone)
    with pytest.raises(ValueError, match="is a folder"):
        predict_table(asked, str(tmp_path / "x.npz"), folder)
    predictor().save(tmp_path / "p")
    assert "is a folder" in call.refused("predict", tmp_path / "p", tmp_path / "x.npz", "--out", folder)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_full_disk_in_predict_names_the_file(tmp_path: Path, suffix: str) -> None:
    """As far as a limit on the size of files is like one: writing fails after it has begun."""
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(3000, 3)).astype(np.float32))
    out, limits = tmp_path / f"answers{suffix}", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(RunError, match=rf"answers\{suffix} cannot be written: .*[Ff]ile too large"):
            predict_table(predictor(), str(tmp_path / "x.npz"), out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {path.name for path in tmp_path.iterdir()} == {"x.npz"}
