"""The examples run, are short, and the docs show what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import TINY_OPTIONS, run

ROOT = Path(__file__).parents[2]
SHOWN = {"churn_table": "estimator.md", "own_plugin": "cli.md"}


def printed(name: str) -> list[str]:
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "--short"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_is_short_and_the_docs_show_its_output(name: str) -> None:
    """The docs have the output of the whole example, so the numbers differ, but every line is there."""
    assert len((ROOT / "examples" / f"{name}.py").read_text().splitlines()) <= 100
    page = (ROOT / "docs" / SHOWN[name]).read_text()
    block = re.search(rf"\$ python examples/{name}\.py\n(.*?)```", page, re.S)
    assert block is not None
    shown = block[1].splitlines()

    def without_numbers(lines: list[str]) -> list[str]:
        return [re.sub(r"\d+(\.\d+)?|'mlp[-\d]+'| +", "#", line) for line in lines]

    assert without_numbers(printed(name)) == without_numbers(shown)


def test_the_plugin_serves_the_command_line_as_its_docstring_says(tmp_path: Path) -> None:
    source = ROOT / "examples" / "own_plugin.py"
    (tmp_path / source.name).write_text(source.read_text())
    assert "posterior.family=noisy_head" in source.read_text()
    chosen = ["posterior.family=noisy_head", "calibration.regularizer=squared_gap", "selector.steps=5"]
    options = [part for one in (*chosen, "outliers.scores=[distance_from_center]") for part in ("-o", one)]
    done = run("train", "--plugin", "own_plugin", "-s", "CBNN", *TINY_OPTIONS, *options, "--out", "run", cwd=tmp_path)
    assert "CBNN" in done.stdout
    assert (tmp_path / "run" / "predictors" / "CBNN").is_dir()
