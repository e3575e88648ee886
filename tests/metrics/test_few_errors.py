"""What resamples cannot show: the bounds by which calibration measures move, and what intervals make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibrant import metrics
from calibrant.evaluation import Evaluation, Resampling, summarize
from calibrant.metrics.few_errors import FEW, RARE, accuracy_reach
from calibrant.metrics.functional import Functional, functional_of, stacked
from calibrant.metrics.proportion import proportion
from calibrant.metrics.resampling import resampled_band
from calibrant.predictions import Predictions

ECE = metrics.expected_calibration_error
RIGHT = np.ones(19)
SURE = np.full(19, 0.99)


@pytest.mark.parametrize(
    ("measure", "options", "slack"),
    [
        (ECE, {}, 1e-12),
        (ECE, {"binning": "mass"}, 1e-12),
        (metrics.smooth_calibration_error, {}, 2**-12),  # its bandwidth is found by bisection
        (metrics.mean_gap, {}, 1e-12),
    ],
)
def test_changing_a_share_of_the_outcomes_changes_the_measure_by_no_more(
    measure: Callable[..., float], options: dict[str, Any], slack: float
) -> None:
    rng = np.random.default_rng(0)
    for trial in range(60):
        level = rng.beta(*((5, 1.3), (60, 1), (1, 1))[trial % 3], 150)
        right = (rng.random(150) < level).astype(float)
        flipped = rng.choice(np.argsort(level)[: rng.integers(10, 150)], rng.integers(1, 10), replace=False)
        other = right.copy()
        other[flipped] = 1 - other[flipped]
        change = abs(measure(level, other, **options) - measure(level, right, **options))
        assert change <= len(flipped) / 150 + slack


def test_the_root_mean_square_of_the_gaps_changes_by_no_more_than_its_bound() -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        mass = rng.dirichlet(np.ones(6))
        moved = rng.random(6) * (rng.random(6) < 0.5)
        delta = float(mass @ moved)
        gaps = rng.uniform(-1, 1, 6)
        change = abs(np.sqrt(mass @ (gaps + moved) ** 2) - np.sqrt(mass @ gaps**2))
        assert change <= np.sqrt(delta * min(1, delta / mass.min())) + 1e-12


def test_the_accuracy_reaches_as_far_as_wilson_until_neither_is_few() -> None:
    for right in (0, 1, FEW - 1, 200 - FEW + 1, 200):
        share = proportion(right, 200)
        expected = share.estimate - share.low, share.high - share.estimate
        assert accuracy_reach(right, 200, 0.95) == pytest.approx(expected)
    assert accuracy_reach(FEW, 2 * FEW, 0.95) == (0.0, 0.0)
    assert accuracy_reach(RARE - 1, 10_000, 0.95)[1] == pytest.approx(proportion(69, 10_000).high - 0.0069)
    assert accuracy_reach(RARE, 10_000, 0.95) == (0.0, 0.0)
    assert accuracy_reach(0, 0, 0.95) == (0.0, 0.0)


def test_nothing_but_right_answers_gives_no_point() -> None:
    reach = 1 - proportion(19, 19).low
    gap = metrics.bootstrap(metrics.mean_gap, SURE, RIGHT, resamples=50)
    assert (gap.low, gap.high) == pytest.approx((-0.01, -0.01 + reach))
    for measure, options in ((ECE, {}), (ECE, {"binning": "mass"}), (metrics.smooth_calibration_error, {})):
        found = metrics.bootstrap(measure, SURE, RIGHT, resamples=50, **options)
        assert (found.low, found.high) == pytest.approx((0, 0.01 + reach))
    root = metrics.bootstrap(metrics.debiased_calibration_error, SURE, RIGHT, resamples=50)
    assert (root.low, root.high) == pytest.approx((0, 0.01 + reach))  # one bin: min p_m is 1
    wrong = metrics.bootstrap(metrics.mean_gap, 1 - SURE, 1 - RIGHT, resamples=50)
    assert (wrong.low, wrong.high) == pytest.approx((0.01 - reach, 0.01))
    two = np.stack([SURE, 1 - SURE], 1), np.zeros(19, int)
    by_class = metrics.bootstrap(metrics.classwise_calibration_error, *two, resamples=50)
    assert by_class.high == pytest.approx(0.01 + reach)


def test_the_root_mean_square_reaches_further_where_a_bin_holds_few() -> None:
    """With 60 of 400 answers, all right, in the smaller of two bins: sqrt(delta min(1, delta / 0.15))."""
    level = np.repeat([0.4, 0.99], [60, 340])
    delta = 1 - proportion(400, 400).low
    root = np.sqrt(0.15 * 0.6**2 + 0.85 * 0.01**2)
    options = {"bins": 2, "binning": "width"}
    found = metrics.bootstrap(metrics.debiased_calibration_error, level, np.ones(400), resamples=50, **options)
    assert found.estimate == pytest.approx(root)
    assert found.high == pytest.approx(root + delta / np.sqrt(0.15))
    few = metrics.bootstrap(metrics.debiased_calibration_error, level[50:70], np.ones(20), resamples=50, **options)
    delta = 1 - proportion(20, 20).low
    assert few.estimate == pytest.approx(np.sqrt(0.5 * 0.6**2 + 0.5 * 0.01**2))
    assert few.high == pytest.approx(few.estimate + delta / np.sqrt(0.5))
    alone = functional_of(metrics.debiased_calibration_error, level[59:79], np.ones(20), **options)
    assert alone.reach is not None
    assert alone.reach(0.95, np.ones((1, 20))) == pytest.approx(2 * [np.sqrt(delta)])  # delta > 1 / 20


def test_rows_that_stand_for_many_are_counted_as_many() -> None:
    level, right, counts = np.array([0.9, 0.99]), np.array([1.0, 1.0]), np.array([100.0, 400.0])
    rows = functional_of(ECE, np.repeat(level, counts.astype(int)), np.ones(500))
    cells = resampled_band(functional_of(ECE, level, right), [counts], resamples=400, level=0.95, seed=0).interval()
    found = resampled_band(rows, resamples=400, level=0.95, seed=0).interval()
    assert cells.estimate == pytest.approx(found.estimate)
    assert (cells.low, cells.high) == pytest.approx((found.low, found.high), abs=2e-3)


def test_in_a_table_of_several_seeds_and_coverages_it_is_the_mean_over_the_seeds() -> None:
    zeros = np.zeros(200, np.int64)
    seeds = []
    for seed, accepted in ((0, 0.9), (1, 0.8)):
        confidence = np.where(np.arange(200) < 100, accepted, 0.6)
        inside = Predictions(confidence, zeros, zeros).numpy()
        seeds.append(Evaluation("a", seed, inside, {"far": Predictions(confidence[:40] - 0.5, zeros[:40]).numpy()}))
    row, half = summarize(seeds[:1], (1.0, 0.5), resampling=Resampling(resamples=50))
    assert half.ece.high == pytest.approx(0.1 + 1 - proportion(100, 100).low)
    assert row.ece.high - row.ece.estimate > 1 - proportion(200, 200).low
    assert half.stream_ece_10.high > half.stream_ece_10.estimate
    (both,) = summarize(seeds, (0.5,), resampling=Resampling(resamples=50))
    assert both.ece.estimate == pytest.approx(0.15)
    assert both.ece.high >= 0.15 + 1 - proportion(100, 100).low


def test_in_a_stream_the_answers_to_id_inputs_weigh_their_share() -> None:
    found = metrics.bootstrap(metrics.stream_calibration_error, SURE, RIGHT, np.full(19, 1e-9), share=0.5, resamples=50)
    assert found.high == pytest.approx(0.5 * (0.01 + 1 - proportion(19, 19).low))


def test_stacked_measures_have_the_intervals_that_each_has_alone() -> None:
    rng = np.random.default_rng(2)
    levels = [rng.beta(30, 1, 100) for _ in range(2)]
    right = (rng.random(100) < 0.97).astype(float)
    parts: list[Functional] = [functional_of(ECE, level, right) for level in levels]
    both = resampled_band(stacked(parts), resamples=100, level=0.95, seed=0).intervals()
    for level, one in zip(levels, both):
        alone = metrics.bootstrap(ECE, level, right, resamples=100)
        assert (one.estimate, one.low, one.high) == pytest.approx((alone.estimate, alone.low, alone.high))


def test_differences_of_sums_of_norms_have_no_interval_unless_asked_for() -> None:
    rng = np.random.default_rng(3)
    level = rng.random(200)
    right = rng.random(200) < level
    for measure in (ECE, metrics.smooth_calibration_error, metrics.debiased_calibration_error):
        found = metrics.bootstrap_difference(measure, (level, right), (level**2, right), resamples=20)
        assert np.isfinite(found.estimate)
        assert np.isnan([found.low, found.high]).all()
        basic = metrics.bootstrap_difference(measure, (level, right), (level**2, right), resamples=20, method="basic")
        assert basic.low < basic.high
    assert np.isfinite(metrics.bootstrap_difference(metrics.accuracy, (right,), (~right,), resamples=20).low)
