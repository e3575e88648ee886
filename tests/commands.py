"""Runs the command line: as a process of its own, or, where that is not the point, in this one."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calibrant import cli
from calibrant.cli import errors

TINY = [
    "data.train=200",
    "data.validation=100",
    "backbone.name=mlp-16",
    "posterior.members=4",
    "fit.epochs=3",
    "finetune.epochs=1",
    "finetune.examples_per_epoch=100",
    "outliers.max_points=100",
    "outliers.trees=5",
    "selector.steps=20",
    "report.resamples=50",
]
TINY_OPTIONS = [part for override in TINY for part in ("-o", override)]


def start(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "calibrant", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd)


def run(*arguments: object, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err or out
    assert "Traceback" not in err
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text().splitlines()))


class Caller:
    """Calls commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, code: int = 0) -> Any:
        """What the command printed: (standard output, standard error)."""
        self.monkeypatch.setattr(sys, "argv", ["calibrant", *map(str, arguments)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            errors.run(cli.app)
        printed = self.capsys.readouterr()
        assert stop.value.code == code, printed.err
        return printed

    def refused(self, *arguments: object, code: int = 2) -> str:
        """The one sentence with which the command was refused."""
        printed = self(*arguments, code=code)
        lines = [line for line in printed.err.splitlines() if not line.startswith("calibrant: warning")]
        complaint = lines[-1]
        assert complaint.startswith("calibrant: "), printed.err
        assert printed.out == ""
        return complaint


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Caller]:
    monkeypatch.delenv("CALIBRANT_DEBUG", raising=False)
    handlers, show = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGHUP)}, warnings.showwarning
    yield Caller(monkeypatch, capsys)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    warnings.showwarning = show
    os.environ.pop("CALIBRANT_DEBUG", None)
