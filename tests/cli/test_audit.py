from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Caller, call, run

from calibrant import metrics

__all__ = ["call"]


def table(path: Path, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(6, 1.2, rows).round(6)
    correct = (rng.random(rows) < confidence - 0.1).astype(int)
    lines = [f"{r},{c}" for r, c in zip(confidence, correct)]
    path.write_text("\n".join(["sure,right", *lines]) + "\n")
    return confidence, correct


def test_audit_measures_diagnoses_and_writes_the_page(tmp_path: Path) -> None:
    confidence, correct = table(tmp_path / "preds.csv", 2000)
    (tmp_path / "ood.csv").write_text("sure\n" + "\n".join(map(str, np.linspace(0.1, 0.7, 200).round(4))) + "\n")
    done = run("audit", "preds.csv", "--ood", "ood.csv", "--confidence", "sure", "--correct", "right", cwd=tmp_path)
    assert "Overconfident on the whole" in done.stdout
    assert done.stdout.splitlines()[-1] == f"The page: {(tmp_path / 'preds-audit.html').as_uri()}"
    error = float(metrics.expected_calibration_error(confidence, correct))
    assert f"{100 * error:.1f}" in done.stdout
    assert "calibrant audit preds.csv --ood ood.csv" in (tmp_path / "preds-audit.html").read_text()


def test_audit_as_json_writes_a_page_only_where_asked(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    confidence, correct = table(Path("preds.csv"), 10)
    found = json.loads(call("audit", "preds.csv", "--confidence", "sure", "--json").out)
    assert found["rows"][0]["n_id"] == 10
    assert found["rows"][0]["accuracy"] == pytest.approx(correct.mean())
    assert found["gap"]["estimate"] == pytest.approx(confidence.mean() - correct.mean())
    assert found["page"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["preds.csv"]


@pytest.mark.parametrize(
    ("content", "arguments", "sentence"),
    [
        (None, [], "does not exist"),
        ("confidence,correct\n0.5,1\n", ["--label", "gold"], "has no column 'gold'"),
        ("\x00\x01\x02", [], "preds.csv"),
        ("p_0,p_1,label\n0.5,0.2,1\n", [], "sum"),
        ("confidence,correct\n1.5,1\n", [], "1.5"),
        ("confidence,correct\n", [], "no rows"),
        ("confidence,correct\n0.5,1\n", ["--ood", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_audit_refuses_in_one_sentence(
    call: Caller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str | None,
    arguments: list[str],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("preds.csv").write_text(content)
    assert sentence in call.refused("audit", "preds.csv", *arguments)
    assert not list(tmp_path.glob("*.html"))
