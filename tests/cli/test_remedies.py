from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from commands import Caller, call

from calibrant import calibrators

__all__ = ["call"]


def table(path: Path, sharp: float) -> np.ndarray:
    """The probabilities in a file: `sharp` times too sure."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(400, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(1)
    p = np.exp(sharp * logits)
    p /= p.sum(1, keepdims=True)
    np.savez(path, probabilities=p, label=labels)
    return p


def test_audit_writes_the_best_calibrator(call: Caller, tmp_path: Path) -> None:
    file, out = tmp_path / "preds.npz", tmp_path / "calibrator.json"
    p = table(file, 3.0)
    told = json.loads(call("audit", file, "--json", "--write-calibrator", out).out)["remedies"]
    assert [part["measure"] for part in told["parts"]] == ["log loss", "Brier score"]
    for part in told["parts"]:
        assert part["calibration"] + part["refinement"] == pytest.approx(part["total"])
    assert told["best"] == "temperature"
    assert told["code"][0] == shlex.join(["calibrant", "audit", str(file), "--write-calibrator", "calibrator.json"])
    calibrated = calibrators.load(out).of_probabilities(p)
    assert float(calibrated.amax(1).mean()) < p.max(1).mean()
    assert json.loads(call("audit", file, "--json", "--no-remedies").out)["remedies"] is None


def test_audit_writes_none_where_none_gains(call: Caller, tmp_path: Path) -> None:
    file, out = tmp_path / "preds.npz", tmp_path / "calibrator.json"
    table(file, 1.0)
    refused = call("audit", file, "--json", "--write-calibrator", out, code=2)
    assert "was not written: no calibrator gains measurably on these 400 rows" in refused.err
    assert not out.exists()
    sentence = call.refused("audit", file, "--json", "--no-remedies", "--write-calibrator", out)
    assert "--write-calibrator needs the remedies: leave out --no-remedies" in sentence
