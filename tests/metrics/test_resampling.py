"""Bootstrap: the vectorized path against a loop, the interval against known errors and coverage."""

import functools
import math

import numpy as np
import pytest
import torch

from calibrant import metrics
from calibrant.metrics import resampling
from calibrant.metrics.functional import Functional
from calibrant.metrics.resampling import limits, resampled_band, resampling_counts

RNG = np.random.default_rng(0)
CONFIDENCE = np.round(RNG.beta(5, 1.3, 120), 2)
CORRECT = RNG.random(120) < CONFIDENCE - 0.1
OOD = np.round(RNG.beta(2, 2, 80), 2)
PROBABILITIES = RNG.dirichlet(np.ones(4), 120)
LABELS = RNG.integers(4, size=120)
ONE, TWO = (CONFIDENCE, CORRECT), (CONFIDENCE, OOD)
FOUR = (CONFIDENCE, OOD, RNG.random(120), RNG.random(80))
GROUPS = {id(TWO): (0, 1), id(FOUR): (0, 1, 0, 1)}
CASES = [
    (metrics.expected_calibration_error, ONE, {}),
    (metrics.expected_calibration_error, ONE, {"binning": "mass", "bins": 7}),
    (metrics.maximum_calibration_error, ONE, {}),
    (metrics.mmce, ONE, {}),
    (metrics.selective_mmce, (*ONE, CONFIDENCE), {}),
    (metrics.classwise_calibration_error, (PROBABILITIES, LABELS), {}),
    (metrics.brier_score, (PROBABILITIES, LABELS), {}),
    (metrics.negative_log_likelihood, (PROBABILITIES, LABELS), {}),
    (metrics.accuracy, (CORRECT,), {}),
    (metrics.aurc, ONE, {}),
    (metrics.coverage, (CONFIDENCE,), {"threshold": 0.8}),
    (metrics.selective_accuracy, ONE, {"coverage": 0.4}),
    (metrics.selective_calibration_error, (*ONE, 1 - CONFIDENCE), {"coverage": 0.4}),
    (metrics.total_variation, TWO, {}),
    (metrics.total_variation, TWO, {"corrected": True}),
    (metrics.ood_detection_probability, TWO, {"bins": 5}),
    (metrics.auroc, TWO, {}),
    (metrics.aupr, TWO, {}),
    (metrics.fpr_at_tpr, TWO, {"tpr": 0.8}),
    (metrics.selective_detection_probability, FOUR, {"coverage": 0.8}),
    (metrics.system_detection_rate, TWO, {"coverage": 0.6, "corrected": True}),
    (metrics.system_detection_rate, FOUR, {"coverage": 0.3}),
]


@pytest.mark.parametrize(("measure", "arrays", "options"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_every_measure_under_counts_is_the_measure_of_the_repeated_points(measure, arrays, options):
    """A partial is not one of ours, so it takes the path that repeats points and calls the measure."""
    groups = GROUPS.get(id(arrays))
    settings = {"resamples": 40, "seed": 3, "method": "percentile"}
    fast = metrics.bootstrap(measure, *arrays, **settings, **options)
    slow = metrics.bootstrap(functools.partial(measure, **options), *arrays, **settings, groups=groups)
    assert fast.estimate == measure(*arrays, **options)
    assert not math.isnan(fast.low)
    assert fast.low < fast.high
    assert (fast.low, fast.high) == pytest.approx((slow.low, slow.high), abs=1e-9)


def test_the_interval_of_a_mean_is_that_of_the_central_limit_theorem():
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    interval = metrics.bootstrap(lambda x: float(x.mean()), values, resamples=2000)
    error = 1.96 * float(values.std()) / math.sqrt(4000)
    assert interval.estimate == pytest.approx(float(values.mean()))
    assert interval.low == pytest.approx(interval.estimate - error, abs=0.1 * error)
    assert interval.high == pytest.approx(interval.estimate + error, abs=0.1 * error)
    narrow = metrics.bootstrap(lambda x: float(x.mean()), values, resamples=200, level=0.5)
    assert narrow.high - narrow.low < 0.5 * (interval.high - interval.low)


def test_counts_are_multinomial():
    counts = resampling_counts(np.random.default_rng(0), 4000, 10)
    assert (counts.sum(1) == 10).all()
    np.testing.assert_allclose(counts.mean(0), 1, atol=0.06)
    np.testing.assert_allclose(np.cov(counts.T), np.eye(10) - 0.1, atol=0.08)


def test_the_basic_method_covers_a_biased_measure_and_percentiles_do_not():
    rng = np.random.default_rng(1)
    truth, covered = 0.05, {"basic": 0, "percentile": 0}
    for _ in range(60):
        confidence = rng.beta(5, 1.3, 300)
        correct = rng.random(300) < confidence - truth
        for method in covered:
            interval = metrics.bootstrap(
                metrics.expected_calibration_error, confidence, correct, resamples=200, method=method
            )
            covered[method] += interval.low <= truth <= interval.high
    assert covered["basic"] >= 48
    assert covered["percentile"] <= 30


def test_limits_stay_in_the_range_of_the_measure():
    interval = metrics.bootstrap(metrics.accuracy, [1] * 99 + [0], level=0.99)
    assert 0.9 < interval.low < interval.high == 1.0
    calibrated = metrics.bootstrap(metrics.expected_calibration_error, CONFIDENCE, CORRECT, method="basic")
    assert calibrated.low >= 0


def test_the_seed_decides():
    first, again, other = (metrics.bootstrap(metrics.aurc, *ONE, seed=seed, resamples=50) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_settings_not_given_are_the_documented_ones():
    """docs/measures.md: `bootstrap(measure, *arrays, resamples=1000, level=0.95, seed=0, **options)`."""
    given = {"resamples": 1000, "level": 0.95, "seed": 0, "method": "auto"}
    assert metrics.bootstrap(metrics.aurc, *ONE) == metrics.bootstrap(metrics.aurc, *ONE, **given)
    pair = metrics.aurc, ONE, (1 - CONFIDENCE, CORRECT)
    assert metrics.bootstrap_difference(*pair) == metrics.bootstrap_difference(*pair, **given)
    bands = [metrics.bootstrap_band(metrics.bin_accuracy, *ONE, **options) for options in ({}, given)]
    np.testing.assert_array_equal(bands[0].low, bands[1].low)
    np.testing.assert_array_equal(bands[0].high, bands[1].high)


@pytest.mark.parametrize("entries", [1, 1000, 10**6])
@pytest.mark.parametrize("kept", [0, 10**9])
def test_how_many_resamples_are_drawn_at_a_time_changes_none(monkeypatch, kept, entries):
    expected = metrics.bootstrap(metrics.auroc, *TWO, resamples=37, seed=5)
    monkeypatch.setattr(resampling, "_KEPT", kept)
    monkeypatch.setattr(resampling, "_ENTRIES", entries)
    assert metrics.bootstrap(metrics.auroc, *TWO, resamples=37, seed=5) == expected


def test_independent_samples_are_resampled_independently():
    """The variance of a difference of independent means is the sum of the variances; resampled together it is 0."""
    values = np.random.default_rng(0).normal(size=400)

    def difference(a, b):
        return float(a.mean() - b.mean())

    apart = metrics.bootstrap(difference, values, values, groups=(0, 1), resamples=500)
    together = metrics.bootstrap(difference, values, values, resamples=50)
    assert apart.high - apart.low == pytest.approx(2 * 1.96 * values.std() * math.sqrt(2 / 400), rel=0.15)
    assert together.high - together.low == pytest.approx(0, abs=1e-12)


def test_a_paired_difference_resamples_both_systems_alike():
    worse = CORRECT & (RNG.random(120) < 0.95)
    paired = metrics.bootstrap_difference(metrics.accuracy, (CORRECT,), (worse,), resamples=300)
    assert paired.estimate == pytest.approx(CORRECT.mean() - worse.mean())
    single = metrics.bootstrap(metrics.accuracy, CORRECT, resamples=300)
    assert paired.high - paired.low < 0.7 * (single.high - single.low)
    nothing = metrics.bootstrap_difference(metrics.total_variation, TWO, TWO, resamples=30, method="basic")
    assert (nothing.estimate, nothing.low, nothing.high) == (0, 0, 0)
    own = metrics.bootstrap_difference(lambda x: float(x.mean()), [CORRECT], [worse], resamples=300, seed=0)
    assert (own.low, own.high) == pytest.approx((paired.low, paired.high))


def test_bands():
    band = metrics.bootstrap_band(metrics.bin_accuracy, *ONE, bins=5, resamples=100)
    np.testing.assert_array_equal(band.estimate, metrics.bin_accuracy(*ONE, bins=5))
    full = ~np.isnan(band.estimate)
    assert band.low.shape == band.high.shape == (5,)
    assert (band.low[full] <= band.high[full]).all()
    assert np.isnan(band.low[~full]).all()
    risk = metrics.bootstrap_band(metrics.selective_risk, *ONE, coverages=[0.2, 0.5, 1.0], resamples=100)
    single = metrics.bootstrap(metrics.selective_accuracy, *ONE, coverage=0.5, resamples=100)
    assert risk.low[1] == pytest.approx(1 - single.high)
    assert risk.high[1] == pytest.approx(1 - single.low)


def test_undefined_resamples_are_left_out_up_to_a_half():
    def rarely(x):
        return float(x.mean()) if (x == 0).any() else float("nan")

    mostly = metrics.bootstrap(rarely, np.arange(10.0), resamples=200)
    assert mostly.low < mostly.estimate < mostly.high

    def only_whole(x):
        return float(x.mean()) if len(np.unique(x)) == 10 else float("nan")

    never = metrics.bootstrap(only_whole, np.arange(10.0), resamples=50)
    assert never.estimate == 4.5
    assert math.isnan(never.low)
    assert math.isnan(never.high)


@pytest.mark.parametrize("method", ["basic", "percentile"])
def test_limits_are_the_order_statistics_of_the_defined_draws(method):
    """With 21 defined draws and level 0.9, the quantiles are the second and the second to last."""
    rng = np.random.default_rng(2)
    draws = rng.normal(0.5, 0.3, (40, 3))
    draws[rng.permutation(40)[:19], 0] = np.nan
    draws[rng.permutation(40)[:21], 1] = np.nan
    estimate = np.array([0.5, 0.5, np.inf])
    low, high = limits(estimate, draws, 0.9, (0.0, 0.8), method)
    ordered = sorted(draw for draw in draws[:, 0] if not math.isnan(draw))
    expected = (ordered[1], ordered[-2]) if method == "percentile" else (1 - ordered[-2], 1 - ordered[1])
    assert (low[0], high[0]) == pytest.approx(tuple(min(max(limit, 0), 0.8) for limit in expected))
    assert np.isnan([low[1:], high[1:]]).all()
    assert limits(0.5, draws[:, 0], 0.9, (0.0, 0.8), method) == (low[0], high[0])


def test_weighted_intervals_cover_what_plain_ones_cover():
    counts = np.array([300.0, 700.0])
    mean = Functional((2,), lambda w: (w @ np.array([0.0, 1.0]) / w.sum(1))[:, None])
    found = resampled_band(mean, [counts], resamples=4000, level=0.95, seed=0)
    half = 1.96 * math.sqrt(0.7 * 0.3 / 1000)
    assert found.estimate == pytest.approx([0.7])
    assert found.low == pytest.approx([0.7 - half], abs=3e-3)
    assert found.high == pytest.approx([0.7 + half], abs=3e-3)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="resamples"):
        metrics.bootstrap(metrics.accuracy, [1], resamples=0)
    with pytest.raises(ValueError, match="level"):
        metrics.bootstrap(metrics.accuracy, [1], level=95)
    with pytest.raises(ValueError, match="method"):
        metrics.bootstrap(metrics.accuracy, [1], method="bca")
    with pytest.raises(ValueError, match="confidence"):
        metrics.bootstrap(metrics.mmce, [2.0], [1])
    with pytest.raises(ValueError, match="groups is for functions of your own"):
        metrics.bootstrap(metrics.auroc, [0.5], [0.5], groups=(0, 1))
    with pytest.raises(ValueError, match="groups must name the sample of each of the 2 arrays"):
        metrics.bootstrap(lambda a, b: 0.0, [0.5], [0.5], groups=(0,))
    with pytest.raises(ValueError, match="of one length"):
        metrics.bootstrap(lambda a, b: 0.0, [0.5], [0.5, 0.6])
    with pytest.raises(ValueError, match="second"):
        metrics.bootstrap_difference(metrics.accuracy, ([1, 0],), ([1],))
