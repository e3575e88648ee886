"""No command writes over a file that it reads, under whatever name, nor over a device or a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Caller, call

from calibrant.audit import audit
from calibrant.deploy import Backbone, Predictor
from calibrant.files import write_bytes
from calibrant.posteriors.ensemble import Ensemble

__all__ = ["call"]
LINKS: list[Callable[[Path, Path], None]] = [os.symlink, os.link]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng, path = np.random.default_rng(0), tmp_path / "p.csv"
    lines = [f"{one:.6f},{int(rng.random() < one)}" for one in rng.beta(5, 1.5, 40)]
    path.write_text("\n".join(["confidence,correct", *lines]) + "\n")
    return path


def test_an_audit_leaves_its_tables_alone(call: Caller, table: Path) -> None:
    before, far = table.read_bytes(), table.with_name("far.csv")
    far.write_text("confidence\n0.5\n0.7\n")
    assert "p.csv would be written over" in call.refused("audit", table, "--out", table)
    assert "p.csv would be written over" in call.refused("audit", table, "--write-calibrator", table)
    assert "far.csv would be written over" in call.refused("audit", table, "--ood", far, "--out", far)
    with pytest.raises(ValueError, match="which is read; name another output file"):
        audit(table, page=table)
    assert table.read_bytes() == before


@pytest.mark.parametrize("linked", LINKS)
def test_a_link_to_an_input_is_refused(call: Caller, table: Path, linked: Callable[[Path, Path], None]) -> None:
    linked(table, table.with_name("page.html"))
    assert "which is read" in call.refused("audit", table, "--out", table.with_name("page.html"))


@pytest.mark.parametrize("spec", ["{}/in.csv", "csv:{}/in.csv?id=id", "csv:{}"])
def test_a_prediction_leaves_its_input_alone(call: Caller, tmp_path: Path, spec: str) -> None:
    folder, backbone = tmp_path / "tables", Backbone("mlp-4", (3,), 2)
    Predictor(Ensemble.of(backbone.build()), backbone=backbone).save(tmp_path / "model")
    folder.mkdir()
    (folder / "in.csv").write_text("a,b,c\n1,2,3\n")
    source = spec.format(folder)
    assert "in.csv would be" in call.refused("predict", tmp_path / "model", source, "--out", folder / "in.csv")
    assert (folder / "in.csv").read_text() == "a,b,c\n1,2,3\n"


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_or_a_pipe_is_not_replaced(call: Caller, table: Path, linked: bool) -> None:
    """Root could lose /dev/null to a rename."""
    pipe = table.with_name("pipe")
    os.mkfifo(pipe)
    out = table.with_name("page.html") if linked else pipe
    if linked:
        out.symlink_to(pipe)
    refused = f"{out.name} is a device or a pipe, which is not written to; name another output file"
    assert refused in call.refused("audit", table, "--out", out)
    assert refused in call.refused("audit", table, "--write-calibrator", out)
    with pytest.raises(ValueError, match="is a device or a pipe"):
        write_bytes(out, b"x")
    assert pipe.is_fifo()
    assert out.is_symlink() == linked
