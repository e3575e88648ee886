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
        ("confidence,correct\n0.5,1\n", ["--ood", "preds.csv", "--ood", "nowhere.csv"], "nowhere.csv"),
        ("label,pred,prob\n1,1,0.99\n0,0,0.01\n", ["--confidence", "prob"], "give --score prob --positive 1"),
        ("label,confidence\n1,0.99\n0,0.01\n", [], "--score confidence --positive 1"),
        ("confidence,correct,confidence\n0.5,1,0.5\n", [], "two columns called 'confidence'"),
        ("confidence,correct\n87,1\n", [], "give --percent"),
        ("confidence,correct\n0.5,1\n", ["--bins", "1000000000"], "'--bins'"),
        ("confidence,correct\n0.5,1\n", ["--classes", "1"], "--classes must be at least 2"),
        (None, ["--fail-if", "ece"], "must read MEASURE > NUMBER"),
        (None, ["--fail-if", "ecce > 1"], "did you mean ece?"),
        (None, ["--fail-if", "auroc > 1"], "give some with --ood"),
        (None, ["--fail-by", "bound"], "by must be one of estimate, any, all"),
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


def test_several_ood_files_are_all_kept(call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("preds", "a", "b"):
        table(Path(f"{name}.csv"), 50)
    arguments = ("audit", "preds.csv", "--ood", "a.csv", "--ood", "b.csv", "--confidence", "sure", "--json")
    assert {row["ood"] for row in json.loads(call(*arguments).out)["rows"]} == {"a", "b"}


def test_options_say_how_a_table_is_read(call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mails.csv").write_text("y;sure\nspam;97,5\nham;2,0\nham;61,0\n;50,0\n")
    options = ("--score", "sure", "--positive", "spam", "--percent", "--json")
    found = json.loads(call("audit", "mails.csv", *options).out)
    assert found["rows"][0]["accuracy"] == pytest.approx(2 / 3)
    assert found["gap"]["estimate"] == pytest.approx((0.975 + 0.98 + 0.61) / 3 - 2 / 3)
    assert "1 of 4 rows of mails have no label and were left out." in found["diagnosis"]
    Path("logits.csv").write_text("y,z_0,z_1,far\ncat,2,0,1\ndog,0.5,0,3\n")
    options = ("--logits", "z_", "--classes", "cat,dog", "--detector", "far", "--json")
    assert json.loads(call("audit", "logits.csv", *options).out)["rows"][0]["accuracy"] == 0.5


def test_a_gate_ends_with_code_3_and_what_was_measured(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    confidence, correct = table(Path("preds.csv"), 400)
    error = float(metrics.expected_calibration_error(confidence, correct))
    gate = ("--fail-if", "ece > 0.05", "--fail-if", "error@0.9 > 0.02", "--fail-if", "accuracy < 1%")
    failed = call("audit", "preds.csv", "--confidence", "sure", "--json", *gate, code=3)
    last = failed.err.splitlines()[-1]
    assert last.startswith(f"calibrant: the audit fails: ece > 0.05: ece is {error:.4g} (")
    assert "; error@0.9 > 0.02: " in last
    assert "accuracy" not in last
    assert len(json.loads(failed.out)["failures"]) == 2
    passed = call("audit", "preds.csv", "--confidence", "sure", "--json", "--fail-if", "ece > 0.9", "--fail-by", "any")
    assert json.loads(passed.out)["failures"] == []
    call("audit", "preds.csv", "--confidence", "sure", "--fail-if", "ece>1%", "--fail-by", "all", code=3)
    assert Path("preds-audit.html").exists()


def test_help_has_examples_whose_quotes_protect_from_the_shell(call: Caller) -> None:
    text = call("audit", "--help").out
    assert '  calibrant audit predictions.csv --fail-if "ece > 0.05" --fail-if "error@0.9 > 2%"' in text
    assert "  calibrant audit mails.csv --score prob --positive spam" in text
