"""Log loss, Brier score and class-wise ECE in rows, frames, JSON and the gate, against the functions themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from calibrant import Predictions, metrics
from calibrant.audit import AuditResult, audit
from calibrant.evaluation import Resampling

FAST = Resampling(resamples=100)


def forecast(n: int, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n)
    p = rng.dirichlet([0.5] * classes, n)
    return (p.cumsum(1) > rng.random((n, 1))).argmax(1), p


def measured(labels: np.ndarray, p: np.ndarray) -> list[float]:
    brier = ((p - np.eye(p.shape[1])[labels]) ** 2).sum(1).mean()
    ece = [metrics.expected_calibration_error(p[:, c], labels == c) for c in range(p.shape[1])]
    return [log_loss(labels, p, labels=range(p.shape[1])), float(brier), float(np.mean(ece))]


def estimates(found: AuditResult, row: int) -> list[float]:
    return [found.rows[row].measures[name].estimate for name in ("log_loss", "brier", "ece_classwise")]


@pytest.mark.parametrize("remedies", [True, False])
@pytest.mark.parametrize("n", [500, 30_000])
def test_they_are_those_of_the_functions_at_every_coverage(n: int, remedies: bool) -> None:
    labels, p = forecast(n)
    found = audit(labels, p, remedies=remedies, resampling=FAST)
    assert estimates(found, 0) == pytest.approx(measured(labels, p))
    cut = np.sort(p.max(1))[::-1][n // 2 - 1]
    kept = p.max(1) >= cut
    about = {} if n < 20_000 else {"rel": 0.02}  # of a long table, the threshold lies between cells
    assert estimates(found, 1) == pytest.approx(measured(labels[kept], p[kept]), **about)
    for row in found.rows:
        for name in ("log_loss", "brier", "ece_classwise"):
            value = row.measures[name]
            assert value.low <= value.estimate <= value.high
            assert value.low < value.high


def test_intervals_of_long_and_of_short_tables_are_about_the_same() -> None:
    labels, p = forecast(20_000)
    short = audit(labels, p, remedies=False).rows[0]
    long = audit(np.append(labels, labels[:1]), np.append(p, p[:1], axis=0), remedies=False).rows[0]
    for name in ("log_loss", "brier"):
        widths = [row.measures[name].high - row.measures[name].low for row in (short, long)]
        assert widths[0] == pytest.approx(widths[1], rel=0.15)


def test_of_a_confidence_alone_they_are_of_being_right() -> None:
    labels, p = forecast(400)
    level, right = p.max(1), p.argmax(1) == labels
    for n in (400, 40_000):
        table = {"confidence": np.resize(level, n), "correct": np.resize(right, n)}
        found = audit(table, remedies=False, resampling=FAST)
        own = np.where(right, level, 1 - level)
        assert estimates(found, 0)[:2] == pytest.approx([-np.log(own).mean(), ((1 - own) ** 2).mean()])
        assert np.isnan(found.rows[0].ece_classwise.estimate)
        assert "both of being right" in str(found)


def test_frame_json_rows_and_gate_have_them() -> None:
    labels, p = forecast(400)
    found = audit(labels, p, remedies=False, resampling=FAST)
    frame = found.to_frame().set_index(["coverage", "measure"])
    expected = measured(labels, p)
    for name, value in zip(("log_loss", "brier", "ece_classwise"), expected):
        assert frame.loc[(1.0, name), "estimate"] == pytest.approx(value)
        assert found.rows[0].flat()[name] == pytest.approx(value)
        (sentence,) = found.failures([f"{name} > {value / 2}"])
        assert f": {name} is {value:.4g} (" in sentence
        assert found.failures([f"{name}@0.7 > 10"]) == []
    assert found.failures(["brier@0.7 > 0"])[0].endswith("at coverage 0.7")
    undefined = audit({"confidence": p.max(1), "correct": p.argmax(1) == labels}, remedies=False, resampling=FAST)
    assert "ece_classwise is undefined" in undefined.failures(["ece_classwise > 0.5"])[0]


def test_the_gate_speaks_of_what_was_asked() -> None:
    labels, p = forecast(400)
    (sentence,) = audit(labels, p, remedies=False, resampling=FAST).failures(["error@0.9 > 2%"])
    assert sentence.startswith("error@0.9 > 2%: error is ")


def test_a_selector_and_counts_leave_out_what_they_do_not_tell() -> None:
    labels, p = forecast(400)
    chosen = Predictions(p.max(1), p.argmax(1), labels, selection=-p.max(1), probabilities=p)
    found = audit(chosen, remedies=False, resampling=FAST)
    kept = p.max(1) <= np.sort(p.max(1))[199]
    assert estimates(found, 1)[:2] == pytest.approx(measured(labels[kept], p[kept])[:2])
    assert np.isnan(found.rows[1].ece_classwise.estimate)
    counted = Predictions(p.max(1), p.argmax(1), labels, count=np.full(400, 2))
    assert "brier" not in audit(counted, remedies=False, resampling=FAST).rows[0].measures


def test_a_repr_is_short_and_print_says_all(tmp_path: Path) -> None:
    labels, p = forecast(300)
    page = tmp_path / "p.html"
    found = audit(labels, np.sqrt(p) / np.sqrt(p).sum(1, keepdims=True), page=page, name="mine", resampling=FAST)
    assert len(repr(found).splitlines()) <= 4
    assert len(repr(found)) < 600
    assert repr(found).startswith("Audit of mine, 300 predictions")
    assert "Underconfident on the whole" in repr(found)
    assert found.remedies is not None
    said = str(found).splitlines()
    assert set(found.diagnosis) | set(found.remedies.sentences) | set(found.remedies.code) <= set(said)
    scores = next(line for line in said if line.startswith("Log loss"))
    assert "Brier score" in scores
    assert "class-wise ECE" in scores
    assert scores in page.read_text().replace("\u00a0", " ")
    assert len(repr(found.remedies)) < 20_000
    assert isinstance(found.to_frame(), pd.DataFrame)
