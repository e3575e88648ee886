"""What follows from the bins of a record, against the inputs that were binned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiment_labs import TINY

from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions
from calibrant.studies import Lab, open_lab
from calibrant.studies.binned_estimates import overconfidence, share_above
from calibrant.studies.measuring import measure
from calibrant.studies.study_trial import StudyTrial
from calibrant.studies.training_claims import fnn_overconfident, ocm_conservative, ocm_lowers_confidence

SCHEMES = ("FNN", "FNN-OCM")


def said(size: int, seed: int, shift: float, *, labeled: bool = True) -> Predictions:
    """Predictions that are right less often than their confidence says, by `shift`; of outliers without labels."""
    rng = np.random.default_rng(seed)
    confidence = np.clip(rng.beta(5, 2, size) - (0.0 if labeled else shift), 0.01, 1)
    label = rng.integers(0, 5, size)
    predicted = np.where(rng.random(size) < confidence - shift, label, (label + 1) % 5)
    return Predictions(confidence, predicted, label if labeled else None, confidence)


def evaluated(scheme: str, seed: int) -> Evaluation:
    shift = 0.1 if scheme == "FNN" else -0.05
    outliers = said(1000, seed + 5, -0.1 if scheme == "FNN" else 0.5, labeled=False)
    return Evaluation(scheme, seed, said(2000, seed + 10 * len(scheme), shift), {"a": outliers}, said(200, 3, shift))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    plan = ["study.schemes=[FNN]", "study.resamples=400", "study.seeds=[0,1]"]
    lab = open_lab("embedded", results=folder / "results", runs=folder / "runs", overrides=[*TINY, *plan])
    for scheme in SCHEMES:
        for seed in lab.seeds:
            content = measure(evaluated(scheme, seed), [], bins=15, count=5)
            lab.write_record(StudyTrial(scheme, seed), content)
    return lab


def test_overconfidence_is_the_mean_of_confidence_less_correctness(lab: Lab) -> None:
    for scheme in SCHEMES:
        parts = [evaluated(scheme, seed).id for seed in lab.seeds]
        gaps = [part.confidence - part.correct for part in parts]
        found = overconfidence(lab, StudyTrial(scheme))
        assert found.value == pytest.approx(np.mean([gap.mean() for gap in gaps]), abs=1e-5)
        one = overconfidence(replace(lab, plan=lab.plan.model_copy(update={"seeds": (0,)})), StudyTrial(scheme))
        assert one.draws.std() == pytest.approx(gaps[0].std() / np.sqrt(len(gaps[0])), rel=0.15)
        assert one.draws.mean() == pytest.approx(one.value, abs=0.002)


def test_the_share_of_confident_outliers_is_counted(lab: Lab) -> None:
    for scheme in SCHEMES:
        shares = [(evaluated(scheme, seed).ood["a"].confidence > 7 / 15).mean() for seed in lab.seeds]
        found = share_above(lab, StudyTrial(scheme), "a", 7)
        assert found.value == pytest.approx(np.mean(shares))
        assert 0 <= found.draws.min() <= found.value <= found.draws.max()


def test_the_same_records_give_the_same_draws_and_other_systems_others(lab: Lab) -> None:
    one, again, other = (overconfidence(lab, StudyTrial(scheme)) for scheme in ("FNN", "FNN", "FNN-OCM"))
    assert (one.draws == again.draws).all()
    assert abs(np.corrcoef(one.draws, other.draws)[0, 1]) < 0.2


def test_what_the_paper_says_of_confidence_is_judged_by_its_sign(lab: Lab) -> None:
    (plain,) = fnn_overconfident(lab)
    (tuned,) = ocm_conservative(lab)
    share, fewer = ocm_lowers_confidence(lab)
    assert [one.holds(0.95) for one in (plain, tuned, share, fewer)] == [True] * 4
    assert plain.estimate.value > 0 > tuned.estimate.value
    assert (share.high, fewer.high) == (0.5, 0)
    assert fewer.estimate.value < 0


def test_a_record_is_needed(tmp_path: Path) -> None:
    empty = open_lab("embedded", results=tmp_path / "results", overrides=TINY)
    with pytest.raises(ValueError, match="is missing"):
        overconfidence(empty, StudyTrial("FNN"))
