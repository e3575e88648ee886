"""The source distribution: what builds and tests the package, and no results."""

import io
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_the_source_distribution_is_light_and_holds_no_results():
    tomllib = pytest.importorskip("tomllib", reason="part of Python from 3.11 on")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert {"src", "tests"} <= set(included)
    assert "results" not in included
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in included:
            archive.add(ROOT / name, name, filter=lambda one: None if "__pycache__" in one.name else one)
    assert len(packed.getvalue()) < 2e6
