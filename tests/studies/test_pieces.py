"""The parts of a study: measures against other libraries, paired intervals, plans, jobs, tables, verdicts."""

import numpy as np
import pytest
import torch
from experiment_labs import TINY
from sklearn.metrics import roc_auc_score

from calibrant.evaluation import Evaluation
from calibrant.metrics import Interval, accuracy, bootstrap_difference
from calibrant.predictions import Predictions
from calibrant.studies import Lab, load_plan, open_lab
from calibrant.studies.estimates import Estimate, over_seeds
from calibrant.studies.findings import spread
from calibrant.studies.lab import combine
from calibrant.studies.measuring import detector, detectors, entry, measure, resamples
from calibrant.studies.planning import trial_jobs
from calibrant.studies.scores_study import _label
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial


def outcome(size, seed, labeled=True, shift=0.0):
    rng = np.random.default_rng(seed)
    confidence = np.clip(rng.beta(4, 2, size) - shift, 0.01, 1)
    label = rng.integers(0, 5, size)
    predicted = np.where(rng.random(size) < confidence, label, (label + 1) % 5)
    return Predictions(confidence, predicted, label if labeled else None, rng.random(size))


def ece(confidence, correct, bins=15):
    """The definition, bin by bin."""
    total = 0.0
    for m in range(bins):
        inside = (confidence > m / bins) & (confidence <= (m + 1) / bins)
        if m == 0:
            inside |= confidence == 0
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return total


def test_a_record_holds_what_the_definitions_give():
    evaluation = Evaluation("x", 0, outcome(400, 1), {"a": outcome(300, 2, False, 0.3)}, outcome(200, 3))
    record = measure(evaluation, [0.5], bins=15, count=20)
    assert [at["wanted"] for at in record["at"]] == [1.0, 0.5]
    cut = np.sort(evaluation.validation.selection)[::-1][99]
    for at, kept in ((record["at"][0], slice(None)), (record["at"][1], evaluation.id.selection >= cut)):
        confidence, correct = evaluation.id.confidence[kept], evaluation.id.correct[kept]
        found = {name: one["value"] for name, one in at["measures"].items()}
        assert found["accuracy"] == pytest.approx(correct.mean(), abs=1e-6)
        assert found["ece"] == pytest.approx(ece(confidence, correct), abs=1e-6)
        assert at["accepted"]["test"] == len(confidence)
        out = evaluation.ood["a"].confidence
        out = out if at["wanted"] == 1 else out[evaluation.ood["a"].selection >= cut]
        edges = np.arange(16) / 15
        p, q = (np.histogram(c, edges)[0] / len(c) for c in (confidence, out))
        assert found["detection:a"] == pytest.approx((1 + np.abs(p - q).sum() / 2) / 2, abs=1e-6)
    area = roc_auc_score(np.r_[np.zeros(400), np.ones(300)], 1 - np.r_[evaluation.id.confidence, out_of(evaluation)])
    assert record["at"][0]["measures"]["auroc:a"]["value"] == pytest.approx(area, abs=1e-6)
    assert sum(record["histograms"]["a"]) == 300
    assert sum(record["reliability"]["count"]) == 400


def out_of(evaluation):
    return evaluation.ood["a"].confidence


def test_draws_are_values_under_the_shared_resamples():
    evaluation = Evaluation("x", 0, outcome(100, 1))
    record = measure(evaluation, [], bins=15, count=7)
    counts = resamples(100, 0, 7)
    assert counts.shape == (8, 100)
    assert (counts.sum(1) == 100).all()
    assert (counts[0] == 1).all()
    expected = counts[1:] @ evaluation.id.correct / 100
    np.testing.assert_allclose(np.array(record["at"][0]["measures"]["accuracy"]["draws"]) / 1e5, expected, atol=1e-5)


def test_undefined_values_are_null_and_come_back_as_nan():
    kept = entry(np.array([np.nan, 0.5, np.nan]))
    assert kept == {"value": None, "draws": [50000, None]}
    back = combine([kept])
    assert np.isnan(back.value)
    assert np.isnan(back.interval().low)


def test_detector_scores_of_tensors():
    found = detector(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.25, 0.4]), "b", 1, 3)
    assert found["auroc:b"]["value"] == pytest.approx(5 / 6, abs=1e-5)


def test_a_difference_of_estimates_is_a_paired_bootstrap():
    rng = np.random.default_rng(0)
    first = rng.random(500) < 0.8
    second = np.where(rng.random(500) < 0.05, ~first, first)
    weights = resamples(500, 0, 2000)[1:]
    one, two = (Estimate(right.mean(), weights @ right / 500) for right in (first, second))
    paired = (one - two).interval()
    reference = bootstrap_difference(accuracy, [first], [second], resamples=2000)
    assert paired.estimate == pytest.approx(reference.estimate)
    assert paired.low == pytest.approx(reference.low, abs=0.004)
    assert paired.high == pytest.approx(reference.high, abs=0.004)
    unpaired = np.sqrt(2 * 0.16 / 500) * 2 * 1.96
    assert paired.high - paired.low < unpaired / 2


def test_seeds_widen_the_interval_by_their_own_spread():
    values = np.array([0.5, 0.6, 0.7])
    alike = np.repeat(values[:, None], 4000, 1)  # no uncertainty from inputs: only seeds differ
    found = over_seeds(values, alike)
    assert found.value == pytest.approx(0.6)
    standard_error = values.std(ddof=1) / np.sqrt(3)
    assert found.draws.std() == pytest.approx(standard_error, rel=0.05)


def test_ratio_and_negation():
    one, two = Estimate(0.2, np.array([0.2, 0.1])), Estimate(0.4, np.array([0.4, 0.0]))
    ratio = one / two
    assert ratio.value == 0.5
    assert np.isnan(ratio.draws[1])
    assert (1.0 - ratio).value == 0.5
    assert (-one).value == -0.2
    assert spread([one, two]).value == pytest.approx(0.2)


def test_jobs_train_every_network_once_and_parents_first(tmp_path):
    lab = open_lab("embedded", results=tmp_path / "r", runs=tmp_path / "runs", overrides=TINY)
    trials = [
        StudyTrial("FNN"),
        StudyTrial("SFNN"),
        StudyTrial("SFNN", eta=0.1),
        StudyTrial("FNN-OCM"),
        StudyTrial("FNN-OCM", gamma=1.0),
    ]
    jobs = trial_jobs(lab, dict.fromkeys(trials, ()))
    names = [job.name for job in jobs]
    assert names == [
        "train FNN_seed-0",
        "train FNN-OCM_seed-0",
        "train FNN-OCM_gamma-1_seed-0",
        "measure FNN_seed-0",
        "measure FNN-OCM_seed-0",
        "measure FNN-OCM_gamma-1_seed-0",
    ]
    assert jobs[1].after == ("train FNN_seed-0",)
    assert [one.name for one in jobs[3].trials] == ["SFNN_eta-0.1_seed-0", "SFNN_seed-0", "FNN_seed-0"]


def test_records_are_stale_when_what_they_depend_on_changes(tmp_path):
    lab = open_lab("embedded", results=tmp_path / "r", overrides=TINY)
    moved = open_lab("embedded", results=tmp_path / "s", overrides=(*TINY, "data.root=/x", "engine.compile=true"))
    longer = open_lab("embedded", results=tmp_path / "r", overrides=(*TINY, "finetune.epochs=3"))
    plain, tuned = StudyTrial("FNN"), StudyTrial("FNN-OCM")
    assert lab.digest(plain) == moved.digest(plain) == longer.digest(plain)
    assert lab.digest(tuned) != longer.digest(tuned)


def test_saved_settings_name_no_folder_of_this_machine(tmp_path):
    paths = (f"data.root={tmp_path}", f"data.uncertainty_splits={tmp_path}/parts.json")
    lab = open_lab("small", results=tmp_path / "r", overrides=paths)
    lab.save()
    text = (tmp_path / "r" / "settings.yaml").read_text()
    assert str(tmp_path) not in text
    assert Lab.load(tmp_path / "r").settings.data.uncertainty_splits == "parts.json"
    assert Lab.load(tmp_path / "r").plan == lab.plan


def test_plans_of_all_profiles_and_wrong_overrides():
    from calibrant.config.loading import load_settings, profiles

    for profile in profiles():
        plan, settings = load_plan(profile), load_settings(profile)
        assert plan.seeds
        least = 100 if profile.startswith("paper") else 1
        assert settings.report.min_bin_count == least
        assert len(plan.coverages) == (4 if profile == "clinc150" else 10)
        assert {0.4, 0.5, 0.8, 1.0} <= set(plan.coverages)  # what claims and tables read
        assert settings.finetune.gamma in plan.gammas
        settings.with_(*plan.backbone.overrides)
        assert settings.selector.eta in plan.etas
    assert load_plan("micro", ["study.seeds=[4]"]).seeds == (4,)
    with pytest.raises(ValueError, match=r"study.coverages.0 cannot be 0"):
        load_plan("micro", ["study.coverages=[0]"])
    assert load_plan("micro", ["seeds=[4]"]).seeds == (4,)
    grids = load_plan("micro", ["study.regularizers.esd=[1]"]).regularizers
    assert grids == {**load_plan("micro").regularizers, "esd": (1,)}
    with pytest.raises(ValueError, match=r"setting study.gamas does not exist; did you mean study.gammas\?"):
        load_plan("micro", ["study.gamas=[0]"])
    with pytest.raises(ValueError, match="must look like"):
        load_plan("micro", ["study.seeds"])
    with pytest.raises(ValueError, match="not YAML"):
        load_plan("micro", ["study.seeds=[1"])
    with pytest.raises(ValueError, match="looks into 'seeds', which is set to a value"):
        load_plan("micro", ["study.seeds.first=1"])


def test_a_damaged_plan_is_told_in_one_sentence(tmp_path):
    (tmp_path / "study.yaml").write_text("seeds: [0")
    with pytest.raises(ValueError, match=r"study file .*study\.yaml is not YAML"):
        Lab.load(tmp_path)


def test_tables_in_fractions_and_in_percent(tmp_path):
    table = StudyTable([{"system": "A|B", "n": 3, "ece": Interval(0.1234567, 0.1, 0.2)}, {"system": "C", "x": 0.5}])
    table.write(tmp_path)
    assert (
        tmp_path / "table.csv"
    ).read_text() == "system,n,ece,ece low,ece high,x\nA|B,3,0.12346,0.1,0.2,\nC,,,,,0.5\n"
    assert table.markdown().splitlines()[2] == "| A\\|B | 3 | 12.3 [10.0, 20.0] |  |"
    assert "–" in StudyTable([{"x": Interval(np.nan, np.nan, np.nan)}]).markdown()


def test_seeds_from_the_command_line():
    from calibrant.cli.reproduce import parse_seeds

    assert parse_seeds("0, 3") == [0, 3]
    with pytest.raises(ValueError, match="--seeds must be whole numbers"):
        parse_seeds("0,-1")


def test_detectors_are_called_as_they_call_themselves_and_unknown_ones_by_name():
    labels = {
        "msp": "confidence",
        "neighbors": "neighbor distance",
        "knn": "k-NN, normalized",
        "somebodys": "somebodys",
    }
    assert {name: _label(name) for name in labels} == labels


def test_every_score_of_the_predictions_is_measured_whatever_it_is_called():
    rng = np.random.default_rng(0)
    parts = {name: torch.from_numpy(rng.random(40) + shift) for name, shift in (("test", 0.0), ("near", 0.5))}
    given = {name: Predictions(scores * 0, scores * 0, scores={"somebodys": scores}) for name, scores in parts.items()}
    found = detectors(given, 3)
    assert list(found) == ["somebodys"]
    truth = np.repeat([0, 1], 40)
    expected = roc_auc_score(truth, np.concatenate([parts["test"], parts["near"]]))
    assert found["somebodys"]["auroc:near"]["value"] == pytest.approx(expected, abs=1e-5)
