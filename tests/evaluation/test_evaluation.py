from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import evaluation

from calibrant import metrics
from calibrant.evaluation import (
    Evaluation,
    Resampling,
    Row,
    coverage_curves,
    share_above,
    summarize,
    thresholds,
)
from calibrant.evaluation.measures import mean_over_seeds
from calibrant.metrics.functional import Functional
from calibrant.predictions import Predictions

FAST = Resampling(resamples=100)


def row(rows: list[Row], system: str, coverage: float, ood: str | None) -> Row:
    (found,) = [r for r in rows if (r.system, r.wanted_coverage, r.ood) == (system, coverage, ood)]
    return found


@pytest.mark.parametrize("validated", [False, True])
def test_a_row_holds_the_measures_of_what_is_accepted(validated: bool) -> None:
    one = evaluation("SFNN", n=2000, validated=validated)
    found = row(summarize([one], [1.0, 0.5], resampling=FAST), "SFNN", 0.5, "near")
    source = one.validation or one.id
    cut = metrics.threshold_at_coverage(source.acceptance, 0.5)
    kept, far = one.id.acceptance >= cut, one.ood["near"]
    through = far.acceptance >= cut
    assert found.threshold_from == ("validation" if validated else "test")
    assert (found.accepted_id, found.accepted_ood) == (kept.sum(), through.sum())
    assert found.coverage.estimate == pytest.approx(kept.mean())
    assert found.accuracy.estimate == pytest.approx(one.id.correct[kept].mean())
    expected = metrics.expected_calibration_error(one.id.confidence[kept], one.id.correct[kept])
    assert found.ece.estimate == pytest.approx(expected)
    assert found.aurc.estimate == pytest.approx(metrics.aurc(one.id.acceptance, one.id.correct))
    levels = one.id.confidence[kept], far.confidence[through]
    assert found.detection.estimate == pytest.approx(metrics.ood_detection_probability(*levels))
    corrected = metrics.ood_detection_probability(*levels, corrected=True)
    assert found.detection_corrected.estimate == pytest.approx(corrected)
    scores = one.id.ood_score[kept], far.ood_score[through]
    assert found.auroc.estimate == pytest.approx(metrics.auroc(*scores))
    assert found.fpr95.estimate == pytest.approx(metrics.fpr_at_tpr(*scores))
    assert found.ood_acceptance.estimate == pytest.approx(through.mean())


@pytest.mark.parametrize("corrected", [False, True])
def test_the_rate_of_the_whole_system_is_the_librarys(corrected: bool) -> None:
    one = evaluation("SBNN")
    found = row(summarize([one], [0.4], resampling=FAST), "SBNN", 0.4, "far")
    far = one.ood["far"]
    expected = metrics.system_detection_rate(
        one.id.confidence, far.confidence, one.id.acceptance, far.acceptance, coverage=0.4, corrected=corrected
    )
    rate = found.system_rate_corrected if corrected else found.system_rate
    assert rate.estimate == pytest.approx(expected)


def test_seeds_are_averaged_and_widen_the_interval() -> None:
    group = [evaluation("FNN", seed, overconfidence=0.05 + 0.2 * seed) for seed in (0, 1)]
    both = row(summarize(group, [1.0], resampling=FAST), "FNN", 1.0, "near")
    single = [row(summarize([one], [1.0], resampling=FAST), "FNN", 1.0, "near") for one in group]
    assert both.seeds == (0, 1)
    assert both.accuracy.estimate == pytest.approx(np.mean([one.accuracy.estimate for one in single]))
    width = max(one.accuracy.high - one.accuracy.low for one in single)
    assert both.accuracy.high - both.accuracy.low > 1.5 * width


def test_the_variance_of_resampled_seeds_is_that_of_their_mean() -> None:
    values = np.array([0.1, 0.4, 0.6])

    def constant(value: float) -> Functional:
        return Functional((2,), lambda weights: np.full((len(weights), 1), value))

    combined = mean_over_seeds([constant(value) for value in values])
    assert combined.value() == pytest.approx(values.mean())
    rng = np.random.default_rng(0)
    seeds = rng.multinomial(3, [1 / 3] * 3, size=200_000).astype(float)
    draws = combined.under(np.ones((len(seeds), 2)), seeds)[:, 0]
    assert draws.mean() == pytest.approx(values.mean(), abs=2e-3)
    assert draws.var() == pytest.approx(values.var(ddof=1) / 3, rel=0.02)


def test_few_accepted_leave_detection_undefined_and_the_systems_rate_defined() -> None:
    one = evaluation("FNN", n=40)
    found = row(summarize([one], [0.5], resampling=FAST), "FNN", 0.5, "near")
    assert found.accepted_id < 30
    undefined = (found.detection, found.detection_corrected, found.auroc, found.fpr95)
    assert all(math.isnan(measure.estimate) and math.isnan(measure.low) for measure in undefined)
    assert math.isfinite(found.system_rate.low)
    assert found.flat()["detection"] is None


def test_a_system_without_ood_data_has_one_row_a_coverage() -> None:
    one = replace(evaluation("FNN"), ood={})
    rows = summarize([one], [1.0, 0.5], resampling=FAST)
    assert [(r.wanted_coverage, r.ood) for r in rows] == [(1.0, None), (0.5, None)]
    assert math.isnan(rows[0].auroc.estimate)
    json.dumps([r.flat() for r in rows], allow_nan=False)


def test_a_row_that_stands_for_many_inputs_counts_as_many() -> None:
    one = evaluation("FNN", n=60)
    times = np.random.default_rng(1).integers(1, 4, size=60)

    def repeat(outcome: Predictions, times: np.ndarray) -> Predictions:
        label = None if outcome.labels is None else np.repeat(outcome.labels, times)
        return Predictions(np.repeat(outcome.confidence, times), np.repeat(outcome.predicted, times), label)

    def weighted(outcome: Predictions, times: np.ndarray) -> Predictions:
        return Predictions(outcome.confidence, outcome.predicted, outcome.labels, count=times)

    long = Evaluation("A", 0, repeat(one.id, times), {"far": repeat(one.ood["far"], times[:30])})
    short = Evaluation("A", 0, weighted(one.id, times), {"far": weighted(one.ood["far"], times[:30])})
    for first, second in zip(summarize([long], [1.0, 0.7]), summarize([short], [1.0, 0.7])):
        assert (first.accepted_id, first.accepted_ood, first.n_id) == (
            second.accepted_id,
            second.accepted_ood,
            second.n_id,
        )
        for name in ("coverage", "accuracy", "ece", "aurc", "detection", "system_rate", "auroc", "fpr95"):
            one_way, other = getattr(first, name), getattr(second, name)
            assert one_way.estimate == pytest.approx(other.estimate, nan_ok=True), name
            assert one_way.low == pytest.approx(other.low, abs=0.03, nan_ok=True), name
    for a, b in zip(coverage_curves([long]), coverage_curves([short])):
        np.testing.assert_allclose(a.sums, b.sums)
        np.testing.assert_allclose(a.ece, b.ece)


def test_curves_equal_the_table_and_pool_the_seeds_in_the_diagram() -> None:
    group = [evaluation("SCBNN-OCM", seed) for seed in (0, 1)]
    coverages = [0.3, 0.62, 1.0]
    (curves,) = coverage_curves(group, coverages)
    rows = summarize(group, coverages, resampling=FAST)
    for position, wanted in enumerate(coverages):
        found = row(rows, "SCBNN-OCM", wanted, "near")
        for name in ("coverage", "accuracy", "ece"):
            assert getattr(curves, name)[:, position].mean() == pytest.approx(getattr(found, name).estimate)
        for name, values in curves.ood["near"].items():
            if name != "accepted":
                value = values[:, position].mean()
                assert value == pytest.approx(getattr(found, name).estimate, nan_ok=True), name
        kept = [one.id.acceptance >= cut for one, cut in zip(group, curves.threshold[:, position])]
        pooled = metrics.reliability_diagram(
            np.concatenate([one.id.confidence[k] for one, k in zip(group, kept)]),
            np.concatenate([one.id.correct[k] for one, k in zip(group, kept)]),
        )
        np.testing.assert_array_equal(curves.reliability(position).count, pooled.count)
        np.testing.assert_allclose(curves.reliability(position).accuracy, pooled.accuracy)
        np.testing.assert_allclose(curves.reliability(position).confidence, pooled.confidence, rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.9]), min_size=1, max_size=12),
    st.lists(st.sampled_from([0.0, 0.1, 0.15, 0.5, 0.95]), min_size=1, max_size=8),
    st.floats(0.01, 1.0),
)
def test_thresholds_are_the_librarys_and_the_share_above_tells_who_is_in(
    source: list[float], other: list[float], coverage: float
) -> None:
    labels = [0] * len(source)
    one = Evaluation("A", 0, Predictions(source, labels, labels))
    far = Predictions(other, [0] * len(other)).numpy()
    (cut,) = thresholds(one, [coverage])
    assert cut == (-np.inf if coverage == 1 else metrics.threshold_at_coverage(source, coverage))
    inside = (share_above(one, far) < coverage) | (coverage == 1)
    np.testing.assert_array_equal(inside, far.acceptance >= cut)


def test_an_evaluation_survives_saving_and_loading(tmp_path: Path) -> None:
    one = evaluation("SFNN", 3, validated=True)
    first, second = one.save(tmp_path / "a.npz"), one.save(tmp_path / "b.npz")
    assert first == second
    again = Evaluation.load(tmp_path / "a.npz")
    assert (again.system, again.seed, dict(again.metadata), list(again.ood)) == (
        "SFNN",
        3,
        {"data": "synthetic"},
        ["near", "far"],
    )
    pairs = [(one.id, again.id), (one.ood["far"], again.ood["far"]), (one.validation, again.validation)]
    for before, after in pairs:
        assert before is not None
        assert after is not None
        assert list(before.scores) == list(after.scores)
        assert all(np.array_equal(before.scores[name], after.scores[name]) for name in before.scores)
        for name in ("confidence", "predicted", "labels", "selection", "ood_score", "count"):
            x, y = getattr(before, name), getattr(after, name)
            assert (x is None) == (y is None)
            if x is not None:
                assert x.dtype == y.dtype
                np.testing.assert_array_equal(x, y)


def test_files_that_are_no_evaluation_are_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        Evaluation.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("nothing")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "new.npz", header=np.array(json.dumps({"format": 99})))
    for name in ("text", "other", "new"):
        with pytest.raises(ValueError, match="is not a saved evaluation"):
            Evaluation.load(tmp_path / f"{name}.npz")


def test_tensors_are_taken_and_the_ood_score_defaults_to_lack_of_confidence() -> None:
    outcome = Predictions(torch.tensor([0.25, 0.5]), torch.tensor([1, 2]), torch.tensor([1, 1])).numpy()
    np.testing.assert_array_equal(outcome.ood_score, [0.75, 0.5])
    assert outcome.confidence.dtype == np.float32
    assert outcome.total == len(outcome) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": [0.5, 1.5]}, "confidence must lie in"),
        ({"labels": [0]}, "labels has 1 entries"),
        ({"selection": [0.1, float("nan")]}, "selection holds NaN"),
        ({"scores": {"svm": [0.1]}}, r"scores\['svm'\] has 1 entries"),
        ({"count": [1, 0]}, "count must be at least 1"),
    ],
)
def test_wrong_outcomes_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"confidence": [0.5, 0.6], "predicted": [0, 1], "labels": [0, 1]}
    with pytest.raises(ValueError, match=message):
        Predictions(**{**good, **change}).numpy()


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="evaluations is empty"):
        summarize([])
    with pytest.raises(ValueError, match="id must have labels"):
        Evaluation("A", 0, Predictions([0.5], [0]))
    with pytest.raises(ValueError, match="are of different data"):
        summarize([evaluation("FNN", 0, n=50), evaluation("FNN", 1, n=60)])
    with pytest.raises(ValueError, match="coverages must lie in"):
        summarize([evaluation("FNN")], [0.0])
    with pytest.raises(ValueError, match="labels are missing"):
        _ = Predictions([0.5], [0]).correct
