"""Guarantees: the bounds against exact probabilities, the search, and simulations that refit the selector."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import beta, binom

from calibrant.selective import ConfidenceSelector, Selector, Threshold, Training
from calibrant.selective.guarantees import (
    _largest_mean,
    binned_error,
    calibration_bound,
    certify,
    clopper_pearson_lower,
    clopper_pearson_upper,
    first_index,
    starting_places,
)


def draw(n, seed):
    """Confidence, scores, correctness and the true probability of being correct."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 2, generator=generator)
    confidence = 0.5 + 0.5 * torch.rand(n, generator=generator)
    accuracy = (confidence - 0.25 * (scores[:, 0] > 0.8)).clamp(0, 1)
    return confidence, scores, torch.rand(n, generator=generator) < accuracy, accuracy


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 300), st.floats(0, 1), st.floats(0.001, 0.5))
def test_clopper_pearson_solves_the_binomial_tail(total, fraction, level):
    errors = round(fraction * total)
    upper, lower = clopper_pearson_upper(errors, total, level), clopper_pearson_lower(errors, total, level)
    if errors < total:
        assert binom.cdf(errors, total, upper) == pytest.approx(level, rel=1e-6)
    else:
        assert upper == 1
    if errors > 0:
        assert binom.sf(errors - 1, total, lower) == pytest.approx(level, rel=1e-6)
    else:
        assert lower == 0


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 8), st.integers(0, 10_000))
def test_the_worst_distribution_is_a_linear_programme(bins, seed):
    random = np.random.default_rng(seed)
    values, p = random.random(bins), random.dirichlet(np.ones(bins))
    low, high = p * random.random(bins), np.minimum(1, p + random.random(bins) * 0.3)
    best = linprog(-values, A_eq=np.ones((1, bins)), b_eq=[1], bounds=list(zip(low, high)))
    assert _largest_mean(values, low, high) == pytest.approx(-best.fun, abs=1e-8)


def test_calibration_bound_covers_and_tightens():
    widths = []
    for n in (300, 3000, 100_000):
        confidence, _, correct, _ = draw(n, n)
        bound = calibration_bound(
            np.ones(n), correct.double().numpy(), 0.1, confidence=confidence.double().numpy(), bins=5
        )
        estimate = binned_error(confidence.double().numpy(), correct.double().numpy(), 5)
        assert bound > estimate
        widths.append(bound - estimate)
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.03


def bound_written_out(confidence, correct, level, bins):
    """The sum in the docstring: quantiles of beta distributions, Hoeffding's inequality, a linear program."""
    n, side, gaps, shares = len(confidence), level / (20 * bins), [], []
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        inside = ((confidence > low) & (confidence <= high)) | ((b == 0) & (confidence == 0))
        count, right = int(inside.sum()), int(correct[inside].sum())
        shares.append((beta.ppf(side, count, n - count + 1) if count else 0, beta.ppf(1 - side, count + 1, n - count)))
        if not count:
            gaps.append(1.0)
            continue
        worst = beta.ppf(8 * side, right, count - right + 1) if right else 0
        best = beta.ppf(1 - 8 * side, right + 1, count - right) if right < count else 1
        mean, slack = confidence[inside].mean(), (high - low) * math.sqrt(math.log(1 / side) / (2 * count))
        gaps.append(max(best - max(low, mean - slack), min(high, mean + slack) - worst))
    return -linprog(-np.array(gaps), A_eq=np.ones((1, bins)), b_eq=[1], bounds=shares).fun


@pytest.mark.parametrize(("n", "bins"), [(60, 12), (400, 4), (3000, 10), (5, 10)])
@pytest.mark.parametrize("level", [0.1, 0.01])
def test_calibration_bound_is_its_formula(n, bins, level):
    """Few examples per bin and many, so that Hoeffding's intervals end at the edges of a bin and within it."""
    random = np.random.default_rng(n)
    confidence = np.concatenate([[0.0, 1.0], random.random(n - 2)])
    correct = (random.random(n) < 0.5).astype(float)  # overconfident in high bins, underconfident in low ones
    others = np.concatenate([np.ones(n), np.zeros(50)])
    found = calibration_bound(
        others, np.concatenate([correct, np.ones(50)]), level,
        confidence=np.concatenate([confidence, np.full(50, 0.5)]), bins=bins,
    )  # fmt: skip
    assert found == pytest.approx(bound_written_out(confidence, correct, level, bins), abs=1e-9)


def test_no_accepted_example_proves_nothing():
    assert calibration_bound(np.zeros(5), np.ones(5), 0.1, confidence=np.ones(5), bins=10) == 1
    assert clopper_pearson_upper(0, 0, 0.1) == 1


def test_binned_error_by_hand():
    confidence, correct = np.array([0.0, 0.1, 0.1, 1.0]), np.array([0.0, 1.0, 0.0, 0.0])
    assert binned_error(confidence, correct, 10) == pytest.approx((0.8 + 1.0) / 4)


def test_a_confidence_just_above_one_is_in_the_last_bin():
    confidence = np.array([1 + 1e-9, 0.95])
    assert binned_error(confidence, np.array([0.0, 1.0]), 10) == pytest.approx((1 - 0.05) / 2)


def test_neighboring_bins_stay_apart():
    assert binned_error(np.array([0.85, 0.95]), np.array([0.0, 1.0]), 10) == pytest.approx((0.85 + 0.05) / 2)


def test_the_calibration_error_is_tested_from_four_places():
    gate, sure, right = torch.linspace(1, 0, 2000), torch.full((2000,), 0.99), torch.ones(2000)
    grid = [Threshold(float(gate[k - 1]), k / 2000, k / 2000, k, 2000) for k in range(20, 2001, 20)]
    found = certify(gate, sure, right, grid, alpha=0.2, delta=0.1, measure="calibration")
    arrays = {"confidence": sure.double().numpy(), "bins": 10}
    assert found.bound == calibration_bound(np.ones(2000), right.double().numpy(), 0.1 / 4, **arrays)


def test_where_too_few_are_accepted_testing_starts_at_the_last_threshold():
    assert first_index([Threshold(0.5, 0.1, 0.1, 1, 10)] * 3, 10, 0.01, 0.1) == 2


def test_the_smallest_coverage_alone_can_be_certified():
    gate, correct = torch.linspace(1, 0, 1000), (torch.arange(1000) < 200).float()
    grid = [Threshold(float(gate[k - 1]), k / 1000, k / 1000, k, 1000) for k in (200, 1000)]
    found = certify(gate, gate, correct, grid, alpha=0.1, delta=0.1)
    assert (found.threshold, found.accepted) == (grid[0].value, 200)


def test_sequences_start_evenly_from_the_first_place_to_the_last():
    assert starting_places(3, 21, 4) == [3, 8, 14, 20]
    assert starting_places(3, 21, 1) == [3]
    assert starting_places(0, 5, 50) == [0, 1, 2, 3, 4]
    assert starting_places(20, 21, 4) == [20]


@pytest.mark.parametrize(("alpha", "delta"), [(0.05, 0.1), (0.1, 0.05), (0.3, 0.2), (0.01, 0.1)])
def test_testing_starts_where_half_the_error_rate_would_be_certified(alpha, delta):
    """Not after more than a tenth more examples than the fewest from which on this holds at every number."""

    def enough(n):
        return clopper_pearson_upper(math.ceil(n * alpha / 2), n, delta) <= alpha

    total = 3000
    grid = [Threshold(0.5, n / total, n / total, n, total) for n in range(1, total + 1)]
    needed = first_index(grid, total, alpha, delta) + 1
    first, always = (next(n for n in range(1, total) if test(n)) for test in
                     (enough, lambda n: all(map(enough, range(n, 2 * n)))))  # fmt: skip
    assert enough(needed)
    assert first <= needed <= 1.1 * always + 1


def test_of_a_single_example_testing_starts_at_the_first_threshold():
    assert first_index([Threshold(0.5, 1.0, 1.0, 1, 1)] * 3, 1, 0.1, 0.1) == 0


def test_the_search_stops_at_the_first_failure():
    """Errors only in the middle of the order: with one start, nothing beyond them is certified."""
    gate = torch.linspace(0, 1, 1000).flip(0)
    correct = torch.ones(1000)
    correct[500:600] = 0
    grid = [Threshold(float(gate[k - 1]), k / 1000, k / 1000, k, 1000) for k in range(100, 1001, 100)]
    found = certify(gate, gate, correct, grid, alpha=0.14, delta=0.1)
    assert found.accepted == 500
    assert found.estimate == 0
    assert found.bound == clopper_pearson_upper(0, 500, 0.1)
    again = certify(gate, gate, correct, grid, alpha=0.14, delta=0.1, starts=10)
    assert again.accepted == 1000
    assert again.bound <= 0.14


def test_the_largest_certified_coverage_is_put_in_force():
    confidence, scores, correct, _ = draw(500, 1)
    selector = Selector(training=Training(steps=20)).fit(confidence, scores, correct)
    fresh = draw(2000, 2)
    found = selector.guarantee(*fresh[:3], alpha=0.4, delta=0.05)
    assert bool(found)
    accepted = selector.accept(*fresh[:2])
    assert int(accepted.sum()) == found.accepted
    assert found.coverage == found.accepted / 2000
    assert found.estimate == pytest.approx(1 - float(fresh[2][accepted].float().mean()))
    assert found.estimate < found.bound <= 0.4
    assert "selective error <= 0.4 with probability 0.95" in str(found)


def test_none_exists_is_said_plainly_and_changes_nothing():
    selector = ConfidenceSelector().fit(draw(300, 1)[0])
    selector.threshold(coverage=0.3)
    before = selector.tau.clone()
    found = selector.guarantee(*draw(300, 2)[:3], alpha=0.001)
    assert not found
    assert found.threshold is None
    assert math.isnan(found.bound)
    assert (found.coverage, found.accepted, found.total) == (0.0, 0, 300)
    assert "No threshold" in str(found)
    assert torch.equal(before, selector.tau)


@pytest.mark.parametrize("measure", ["error", "calibration"])
@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_all_wrong_and_all_correct(measure, outcome):
    confidence, scores, correct, _ = draw(200, 1)
    selector = ConfidenceSelector().fit(confidence, scores, correct)
    sure = torch.full((2000,), 0.99)
    found = selector.guarantee(sure, None, torch.full((2000,), outcome), alpha=0.1, measure=measure)
    assert bool(found) == bool(outcome)
    if found:
        assert found.coverage == 1.0


def violations(draws, measure, alpha, delta, make, calibration, bins=4):
    """How often the certified threshold exceeds alpha in truth, and how often one was found."""
    truth = draw(20_000, 10**6)
    wrong = found = 0
    for k in range(draws):
        confidence, scores, correct, _ = draw(120, 3 * k + 1)
        selector = make(k).fit(confidence, scores, correct)
        part = draw(calibration, 3 * k + 2)[:3]
        claim = selector.guarantee(*part, alpha=alpha, delta=delta, measure=measure, bins=bins)
        if claim:
            accepted = selector.accept(truth[0], truth[1])
            found += 1
            wrong += true_measure(measure, truth[0][accepted], truth[3][accepted], bins) > alpha
    return wrong / draws, found / draws


def true_measure(measure, confidence, accuracy, bins):
    if measure == "error":
        return 1 - float(accuracy.mean())
    return binned_error(confidence.double().numpy(), accuracy.double().numpy(), bins)


def check_simulation(draws):
    delta = 0.2

    def small(seed):
        return Selector(training=Training(steps=8, learning_rate=0.02), hidden=16, seed=seed)

    limit = delta + 3 * math.sqrt(delta * (1 - delta) / draws)
    rate, found = violations(draws, "error", 0.28, delta, small, 400)
    assert rate <= limit
    assert found > 0.3
    rate, found = violations(draws, "calibration", 0.15, delta, small, 1500)
    assert rate <= limit
    assert found > 0.3


def test_guarantees_hold_when_the_selector_is_refitted():
    check_simulation(100)


@pytest.mark.slow
def test_guarantees_hold_over_a_thousand_draws():
    check_simulation(1000)


def test_the_simulation_notices_a_missing_bound(monkeypatch):
    """With the empirical error in place of its bound, the claims fail more often than delta allows."""
    monkeypatch.setattr("calibrant.selective.guarantees.clopper_pearson_upper", lambda e, n, level: e / n if n else 1.0)
    rate, _ = violations(60, "error", 0.28, 0.05, lambda k: ConfidenceSelector(), 400)
    assert rate > 0.05 + 3 * math.sqrt(0.05 * 0.95 / 60)


def test_bad_requests_are_refused():
    confidence, scores, correct, _ = draw(100, 1)
    selector = Selector(training=Training(steps=5))
    with pytest.raises(ValueError, match="not fitted"):
        selector.guarantee(confidence, scores, correct, alpha=0.1)
    selector.fit(confidence, scores, correct)
    with pytest.raises(ValueError, match="fitted on"):
        selector.guarantee(confidence.flip(0), scores.flip(0), correct.flip(0), alpha=0.1)
    fresh = draw(100, 2)[:3]
    for bad in ({"alpha": 0.0}, {"alpha": 1.0}, {"alpha": 0.1, "delta": 0.0}):
        with pytest.raises(ValueError, match=list(bad)[-1]):
            selector.guarantee(*fresh, **bad)
    with pytest.raises(ValueError, match="measure"):
        selector.guarantee(*fresh, alpha=0.1, measure="brier")
    with pytest.raises(ValueError, match="coverages is empty"):
        selector.guarantee(*fresh, alpha=0.1, coverages=())
    with pytest.raises(ValueError, match="coverage must lie"):
        selector.guarantee(*fresh, alpha=0.1, coverages=(2.0,))
    with pytest.raises(ValueError, match="correct has 50 entries"):
        selector.guarantee(fresh[0], fresh[1], fresh[2][:50], alpha=0.1)
    with pytest.raises(ValueError, match="starts"):
        selector.guarantee(*fresh, alpha=0.1, starts=0)
    with pytest.raises(ValueError, match="bins"):
        selector.guarantee(*fresh, alpha=0.1, bins=0)
