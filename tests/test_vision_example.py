"""The scripts in `examples/`, run in a short mode; the docs show them as they are."""

from __future__ import annotations

import runpy
import sys
import warnings
from pathlib import Path

import pytest
from vision_networks import write_noise, write_photos

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "vision_checkpoint.py"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_photos(tmp_path / "photos", 240)
    write_noise(tmp_path / "noise", 100)
    return tmp_path


def test_a_vision_checkpoint_becomes_a_predictor(
    images: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {"data.source": images / "photos", "data.uncertainty": images / "noise", "data.ood": "['noise?size=32']"}
    short |= {"data.classes": [*map(str, range(7)), "blue", "green", "red"], "report.resamples": 20}
    short |= {"rule.max_error": 0.99, "rule.min_coverage": "null"}
    overrides = [part for name, value in short.items() for part in ("--override", f"{name}={value}")]
    out = str(images / "run")
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, "--data", str(images), "--out", out, *overrides])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the network is right on only")  # its weights are random here
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert "network + temperature" in printed
    assert "one photo: {'predicted':" in printed
    assert (images / "run" / "report.html").is_file()


def test_the_docs_show_the_example_as_it_is() -> None:
    assert EXAMPLE.read_text() in (ROOT / "docs" / "own-network.md").read_text()
    assert len(EXAMPLE.read_text().splitlines()) <= 100
