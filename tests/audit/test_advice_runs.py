"""The lines and the command that an audit prints are run as they are printed."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from commands import Caller, call

from calibrant.audit import audit
from calibrant.audit.outliers_answered import outlier_scores
from calibrant.audit.sample import Sample
from calibrant.calibrators.fits import softmax
from calibrant.evaluation import Resampling

__all__ = ["call"]
QUICK = Resampling(resamples=100)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are run as printed write calibrator.json into the current folder."""
    monkeypatch.chdir(tmp_path)


def overconfident(classes: int, n: int = 1200) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits that are twice too large."""
    rng = np.random.default_rng(classes)
    truth = 2 * rng.normal(size=(n, classes))
    return (truth + rng.gumbel(size=truth.shape)).argmax(1), 2 * truth


def ran(code: tuple[str, ...] | list[str], **own: Any) -> tuple[dict[str, Any], Any]:
    """The names after the lines, and the value of the last one if it is an expression."""
    *lines, last = [line for line in code if not line.startswith("calibrant ")]
    exec("\n".join(lines), own)
    if " = " in last:
        exec(last, own)
        return own, None
    return own, eval(last, own)  # noqa: S307


@pytest.mark.parametrize("form", ["probabilities", "logits", "score", "log odds", "log odds (N, 1)", "confidence"])
def test_a_calibrator_is_applied(form: str) -> None:
    labels, z = overconfident(3 if form in ("probabilities", "logits", "confidence") else 2)
    p, odds = softmax(z), z[:, -1] - z[:, 0]
    options: dict[str, Any] = {"resampling": QUICK}
    own: dict[str, Any]
    if form == "probabilities":
        result, own = audit(labels, p, **options), {"probabilities": p}
    elif form == "logits":
        result, own = audit(labels, logits=z, **options), {"logits": z}
    elif form == "score":
        result, own = audit(labels, p[:, 1], **options), {"score": p[:, 1]}
    elif form == "confidence":
        own = {"confidence": p.max(1)}
        result = audit({**own, "correct": p.argmax(1) == labels}, **options)
    else:
        own = {"logits": odds if form == "log odds" else odds[:, None]}
        result = audit(labels, logits=own["logits"], **options)
    assert result.remedies is not None
    assert result.remedies.best is not None
    _, value = ran(result.remedies.code, result=result, **own)
    levels = value if value.ndim == 1 else value.max(1).values
    assert len(levels) == len(labels)
    if form != "score":  # which may lie on either side of 1/2
        assert float(levels.double().mean()) < p.max(1).mean() - 0.01


def scored(seed: int, shift: float, n: int) -> dict[str, Any]:
    """Probabilities that say nothing about outliers, and a detector's score that does."""
    _, z = overconfident(4, n)
    p = np.clip(softmax(z).round(6), 1e-6, None)
    p /= p.sum(1, keepdims=True)
    knn = shift + np.random.default_rng(seed).normal(size=n)
    return {**{f"p_{c}": p[:, c] for c in range(4)}, "knn": knn}


def tables(folder: Path, shift: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    labels, _ = overconfident(4, 1500)
    inside = pd.DataFrame({**scored(0, 0.0, 1500), "label": labels})
    far = pd.DataFrame(scored(1, shift, 700))
    inside.to_csv(folder / "preds.csv", index=False)
    far.to_csv(folder / "photos.csv", index=False)
    return inside, far


def answered(own: dict[str, Any]) -> float:
    return float(torch.as_tensor(own["answered"]).double().mean())


def arrays(frame: pd.DataFrame) -> dict[str, Any]:
    return {
        "probabilities": frame.filter(like="p_").to_numpy(),
        "scores": {"knn": frame.knn.to_numpy()},
    }


def test_trust_answers_as_the_audit_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Caller) -> None:
    inside, far = tables(tmp_path, 4.0)
    result = audit(inside, {"photos": far}, detectors="knn", resampling=QUICK)
    assert result.remedies is not None
    code = list(result.remedies.code)
    assert any(line.startswith("trust = Trust(share=0.1).fit(validation, outliers, ['knn'") for line in code)
    own, _ = ran(code, result=result, **arrays(inside))
    assert answered(own) == pytest.approx(0.8, abs=0.01)
    own, _ = ran(code, result=result, **arrays(far))
    assert answered(own) < 0.05
    # and from the command line, where the lines make the result themselves
    told = call("audit", "preds.csv", "--ood", "photos.csv", "--detector", "knn").out.splitlines()
    start = next(place for place, line in enumerate(told) if line.startswith("from calibrant"))
    lines = [line for line in told[start:] if not line.startswith("The page")]
    monkeypatch.setattr("calibrant.audit.Resampling", lambda: QUICK)
    calibrated = told[start - 1]
    assert calibrated.startswith("calibrant audit preds.csv --ood photos.csv --detector knn --write-calibrator")
    call(*shlex.split(calibrated)[1:])
    own, _ = ran(lines, **arrays(far))
    assert answered(own) < 0.05


def test_what_is_printed_about_tables_in_folders_runs_where_it_was_printed(tmp_path: Path, call: Caller) -> None:
    (tmp_path / "run 1").mkdir()
    _, far = tables(tmp_path / "run 1", 4.0)
    gate = ("--fail-if", "accuracy < 10%", "--fail-by=all", "--no-remedies", "--remedies")
    told = call("audit", "run 1/preds.csv", "--ood", "run 1/photos.csv", "--detector", "knn", *gate).out.splitlines()
    start = next(place for place, line in enumerate(told) if line.startswith("from calibrant"))
    assert "--fail" not in told[start - 1]
    call(*shlex.split(told[start - 1])[1:])
    own, _ = ran([line for line in told[start:] if not line.startswith("The page")], **arrays(far))
    assert answered(own) < 0.05


def test_a_threshold_on_a_score_that_beats_the_confidence_is_printed(tmp_path: Path) -> None:
    """Trust is not tried with fewer than twenty outliers."""
    inside, far = tables(tmp_path, 6.0)
    result = audit(inside, {"photos": far[:19]}, detectors="knn", resampling=QUICK)
    assert result.remedies is not None
    code = list(result.remedies.code)
    assert code[-1].startswith("answered = new.scores['knn'] <= ")
    own, _ = ran(code, result=result, **arrays(inside))
    assert answered(own) == pytest.approx(0.8, abs=0.001)
    own, _ = ran(code, result=result, **arrays(far))
    assert answered(own) == 0


def test_a_score_of_the_logits_needs_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outliers with the same probabilities, but lower logits."""
    labels, z = overconfident(4, 1500)
    result = audit(labels, logits=z, ood={"low": z[:19] - 30}, resampling=QUICK)
    assert result.remedies is not None
    assert result.remedies.code[-1].startswith(("answered = new.scores['energy'] <= ", "answered = new.scores['max_l"))
    own, _ = ran(list(result.remedies.code)[-2:], result=result, logits=z)
    assert answered(own) == pytest.approx(0.8, abs=0.001)
    own, _ = ran(list(result.remedies.code)[-2:], result=result, logits=z - 30)
    assert answered(own) == 0
    monkeypatch.setattr("calibrant.audit.advice._best_rule", lambda found: ("low", "recalibrated"))
    result = audit(labels, logits=z, ood={"low": z[:19] - 30}, resampling=QUICK)
    assert result.remedies is not None
    own, _ = ran(list(result.remedies.code)[-2:], result=result, logits=z)
    assert answered(own) == pytest.approx(0.8, abs=0.001)


def test_records_have_the_scores_of_the_tables_and_refuse_other_names(tmp_path: Path) -> None:
    inside, far = tables(tmp_path, 3.0)
    result = audit(inside, {"photos": far}, detectors="knn", resampling=QUICK)
    assert result.remedies is not None
    validation, outliers = result.remedies.records("photos")
    assert (len(validation), len(outliers)) == (1500, 700)
    p = arrays(far)["probabilities"]
    expected = outlier_scores(Sample.of(confidence=p.max(1), probabilities=p))
    for name, values in expected.items():
        np.testing.assert_allclose(outliers.scores[name].numpy(), values, rtol=1e-6, atol=1e-9)
    new = result.remedies.record(**arrays(far))
    torch.testing.assert_close(new.confidence, outliers.confidence)
    with pytest.raises(ValueError, match="there are no outliers called 'photo'; there are photos"):
        result.remedies.records("photo")
    with pytest.raises(ValueError, match="give probabilities, logits or a confidence"):
        result.remedies.record()
