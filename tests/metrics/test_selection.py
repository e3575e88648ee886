"""Selective measures against brute force over thresholds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant import metrics

level = st.one_of(st.floats(0, 1), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
points = st.lists(st.tuples(level, level, st.booleans()), min_size=1, max_size=40).map(
    lambda rows: [np.array(column) for column in zip(*rows)]
)
coverages = st.one_of(st.floats(0.01, 1), st.sampled_from([0.07, 0.1, 0.3, 0.5, 1.0]))


def best_threshold(acceptance, coverage):
    """Try every threshold; keep the one of the smallest coverage that suffices. Coverage 1 rejects nothing anywhere."""
    if coverage == 1:
        return -np.inf
    options = [(np.mean(acceptance >= tau), tau) for tau in set(acceptance.tolist())]
    return min(option for option in options if option[0] >= coverage)[1]


@given(points, coverages)
@settings(deadline=None, max_examples=120)
def test_the_smallest_achievable_coverage_that_suffices(data, coverage):
    confidence, acceptance, correct = data
    tau = metrics.threshold_at_coverage(acceptance, coverage)
    assert tau == best_threshold(acceptance, coverage)
    kept = acceptance >= tau
    assert metrics.coverage(acceptance, tau) == pytest.approx(kept.mean())
    result = metrics.selective(confidence, correct, acceptance, coverage=coverage)
    assert (result.threshold, result.accepted) == (tau, kept.sum())
    assert result.coverage == pytest.approx(kept.mean())
    assert result.coverage >= coverage
    assert result.accuracy == pytest.approx(correct[kept].mean())
    expected = metrics.expected_calibration_error(confidence[kept], correct[kept])
    assert result.calibration_error == pytest.approx(expected, abs=1e-12)
    mass = metrics.selective_calibration_error(confidence, correct, acceptance, coverage=coverage, binning="mass")
    expected = metrics.expected_calibration_error(confidence[kept], correct[kept], binning="mass")
    assert mass == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n", [7, 10, 100, 1000])
def test_coverage_is_exact_without_ties(n):
    acceptance = np.random.default_rng(n).permutation(n) / n
    for k in range(1, n + 1):
        assert (acceptance >= metrics.threshold_at_coverage(acceptance, k / n)).sum() == k


def test_the_confidence_is_the_default_acceptance():
    confidence, correct = [0.9, 0.8, 0.3], [1, 0, 0]
    assert metrics.selective_accuracy(confidence, correct, coverage=0.3) == 1
    assert metrics.selective_accuracy(confidence, correct, coverage=1.0) == pytest.approx(1 / 3)


@given(points)
@settings(deadline=None, max_examples=80)
def test_risk_coverage_and_its_area_by_brute_force(data):
    acceptance, _, correct = data
    taus = sorted(set(acceptance.tolist()), reverse=True)
    coverage = np.array([np.mean(acceptance >= tau) for tau in taus])
    risk = np.array([1 - correct[acceptance >= tau].mean() for tau in taus])
    result = metrics.risk_coverage(acceptance, correct)
    np.testing.assert_allclose(result.threshold, taus)
    np.testing.assert_allclose(result.coverage, coverage)
    np.testing.assert_allclose(result.risk, risk, atol=1e-12)
    area = sum(step * height for step, height in zip(np.diff(coverage, prepend=0), risk))
    assert metrics.aurc(acceptance, correct) == pytest.approx(area, abs=1e-12)
    at = metrics.selective_risk(acceptance, correct, [0.3, 1.0])
    expected = [1 - metrics.selective_accuracy(acceptance, correct, coverage=xi) for xi in (0.3, 1.0)]
    np.testing.assert_allclose(at, expected, atol=1e-12)


def test_aurc_without_ties_is_the_mean_of_running_error_rates():
    rng = np.random.default_rng(0)
    acceptance, correct = rng.permutation(50) / 50, rng.random(50) < 0.7
    wrong = ~correct[np.argsort(-acceptance)]
    expected = np.mean(np.cumsum(wrong) / np.arange(1, 51))
    assert metrics.aurc(acceptance, correct) == pytest.approx(expected)


def _two_samples(seed=0, n=300, k=200):
    rng = np.random.default_rng(seed)
    return rng.beta(6, 1, n), rng.beta(2, 2, k), rng.random(n), rng.random(k) * 0.8


@pytest.mark.parametrize("coverage", [0.3, 0.7, 1.0])
def test_detection_at_coverage_compares_what_is_accepted(coverage):
    id_confidence, ood_confidence, id_acceptance, ood_acceptance = data = _two_samples()
    result = metrics.ood_detection_at_coverage(*data, coverage=coverage)
    kept_id, kept_ood = id_acceptance >= result.threshold, ood_acceptance >= result.threshold
    assert result.threshold == best_threshold(id_acceptance, coverage)
    assert (result.accepted_id, result.accepted_ood) == (kept_id.sum(), kept_ood.sum())
    assert (result.id_coverage, result.ood_coverage) == (kept_id.mean(), kept_ood.mean())
    accepted = id_confidence[kept_id], ood_confidence[kept_ood]
    assert result.defined
    assert result.probability == pytest.approx(metrics.ood_detection_probability(*accepted))
    assert result.corrected_probability == pytest.approx(metrics.ood_detection_probability(*accepted, corrected=True))


@pytest.mark.parametrize("coverage", [0.05, 0.3, 0.7, 1.0])
def test_system_rate_is_that_of_the_best_verdicts_with_rejections_as_detections(coverage):
    id_confidence, ood_confidence, id_acceptance, ood_acceptance = data = _two_samples(1)
    tau = metrics.threshold_at_coverage(id_acceptance, coverage)
    right_ood, right_id = np.mean(ood_acceptance < tau), 0.0
    for m in range(15):
        in_bin = [(c > m / 15) & (c <= (m + 1) / 15) for c in (id_confidence, ood_confidence)]
        p = np.mean(in_bin[0] & (id_acceptance >= tau))
        q = np.mean(in_bin[1] & (ood_acceptance >= tau))
        right_id, right_ood = (right_id + p, right_ood) if p >= q else (right_id, right_ood + q)
    rate = metrics.system_detection_rate(*data, coverage=coverage)
    assert rate == pytest.approx((right_id + right_ood) / 2)


@pytest.mark.parametrize("corrected", [False, True])
def test_the_system_without_rejections_is_the_detector_alone(corrected):
    confidences = _two_samples()[:2]
    same = np.ones(300), np.ones(200)
    rate = metrics.system_detection_rate(*confidences, *same, coverage=0.5, corrected=corrected)
    assert rate == pytest.approx(metrics.ood_detection_probability(*confidences, corrected=corrected))


def test_rejecting_every_outlier_is_detection_and_rejecting_the_rest_is_not():
    same = np.full(100, 0.9)
    perfect = metrics.ood_detection_at_coverage(same, same, np.ones(100), np.zeros(100), coverage=0.99)
    assert perfect.system_rate == 1
    assert perfect.accepted_ood == 0
    assert math.isnan(perfect.probability)
    assert not perfect.defined
    # A selector that rejects half the ID points and no OOD point is worse than none.
    wrong = np.repeat([1.0, 0.0], 50)
    assert metrics.system_detection_rate(same, same, wrong, np.ones(100), coverage=0.5) == pytest.approx(0.5)
    assert metrics.system_detection_rate(1 - same, same, wrong, np.ones(100), coverage=0.5) == pytest.approx(0.75)


def test_fewer_than_thirty_accepted_is_undefined():
    inside, outside = np.linspace(0, 1, 100), np.linspace(0, 1, 100)
    for coverage, defined in ((0.29, False), (0.30, True)):
        result = metrics.ood_detection_at_coverage(inside, outside, coverage=coverage)
        assert result.defined is defined
        assert math.isnan(result.probability) is not defined
        assert math.isnan(result.corrected_probability) is not defined
        assert not math.isnan(result.system_rate)
    interval = metrics.bootstrap(metrics.selective_detection_probability, inside, outside, coverage=0.2, resamples=9)
    assert math.isnan(interval.low)


@pytest.mark.parametrize("coverage", [0.0, -0.1, 1.1, float("nan")])
def test_bad_coverage(coverage):
    calls = [
        lambda: metrics.threshold_at_coverage([0.5], coverage),
        lambda: metrics.selective([0.5], [1], coverage=coverage),
        lambda: metrics.system_detection_rate([0.5], [0.5], coverage=coverage),
        lambda: metrics.selective_risk([0.5], [1], [coverage]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="coverage"):
            call()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="acceptance has 2 entries, but confidence has 1"):
        metrics.selective_accuracy([0.5], [1], [0.1, 0.2], coverage=0.5)
    with pytest.raises(ValueError, match="acceptance holds NaN"):
        metrics.aurc([float("nan")], [1])
    with pytest.raises(ValueError, match="correct has 2 entries"):
        metrics.risk_coverage([0.5], [1, 0])
    with pytest.raises(ValueError, match="threshold"):
        metrics.coverage([0.5], float("nan"))
    with pytest.raises(ValueError, match="coverages is empty"):
        metrics.selective_risk([0.5], [1], [])
    with pytest.raises(ValueError, match="ood_acceptance is missing"):
        metrics.system_detection_rate([0.5], [0.5], [0.5], coverage=1.0)
    with pytest.raises(ValueError, match="id_acceptance has 2 entries"):
        metrics.system_detection_rate([0.5], [0.5], [0.5, 0.6], [0.5], coverage=1.0)
