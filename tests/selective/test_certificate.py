"""Certificates: the bounds hold as often as promised, by simulation with exact risks; what they imply."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom
from torch import Tensor

from calibrant.selective import Certificate, ConfidenceSelector, Promise, Selector, Threshold, Training
from calibrant.selective.certificate import _first, certify_promise, examples_needed
from calibrant.selective.thresholds import threshold_for_coverage


def inliers(n: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Confidence r, uniform in (0, 1), and correctness with probability (1 + r) / 2."""
    r = torch.rand(n, generator=random, dtype=torch.float64)
    return r, torch.rand(n, generator=random, dtype=torch.float64) < (1 + r) / 2


def outliers(n: int, random: torch.Generator) -> Tensor:
    """Confidence with distribution function sqrt(t)."""
    return torch.rand(n, generator=random, dtype=torch.float64).square()


def risks(threshold: float) -> tuple[float, float, float]:
    """Exact error among accepted, share of outliers accepted and coverage at a threshold on r.

    The mean of (1 + r) / 2 over r in (t, 1) is 1/2 + (1 + t) / 4.
    """
    t = min(max(threshold, 0.0), 1.0)
    return 0.5 - (1 + t) / 4, 1 - math.sqrt(t), 1 - t


# The error binds, the outliers bind, the coverage leaves little room, and the edge: the coverage needs t <= 0.6, the
# error t >= 0.6, so that what can be certified is true only at one point, and mostly false.
CASES = {
    "error": {"max_error": 0.15, "max_outliers": 0.6},
    "outliers": {"max_error": 0.2, "max_outliers": 0.25},
    "coverage": {"max_error": 0.18, "max_outliers": 0.5, "min_coverage": 0.4},
    "edge": {"max_error": 0.1, "max_outliers": 0.3, "min_coverage": 0.4},
}


COVERAGES = tuple(step / 25 for step in range(1, 26))


def violations(case: dict[str, float], draws: int, delta: float, starts: int = 1) -> tuple[float, float]:
    """How often a certificate was wrong, and how often one was given, of so many draws of everything."""
    wrong = given = 0
    for k in range(draws):
        random = torch.Generator().manual_seed(k)
        selector = ConfidenceSelector().fit(inliers(300, random)[0])
        r, correct = inliers(800, random)
        made = selector.certify(
            r, None, correct, outliers(400, random), **case, delta=delta, coverages=COVERAGES, starts=starts
        )
        if made:
            assert made.threshold is not None
            error, accepted, coverage = risks(made.threshold)
            given += 1
            wrong += (
                error > case["max_error"] or accepted > case["max_outliers"] or coverage < case.get("min_coverage", 0.0)
            )
    return wrong / draws, given / draws


def check(draws: int) -> None:
    for name, case in CASES.items():
        delta, starts = (0.1, 3) if name == "outliers" else (0.2, 1)
        rate, given = violations(case, draws, delta, starts)
        assert rate <= delta + 3 * math.sqrt(delta * (1 - delta) / draws), name
        if name != "edge":
            assert given > 0.6, name


def test_certificates_are_wrong_no_more_often_than_promised() -> None:
    check(200)


@pytest.mark.slow
def test_certificates_hold_over_a_thousand_draws() -> None:
    check(1000)


def test_the_simulation_notices_missing_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With estimates in place of their bounds, the claims fail more often than delta allows."""
    monkeypatch.setattr(
        "calibrant.selective.certificate.clopper_pearson_upper", lambda bad, n, level: bad / n if n else 1.0
    )
    rate, _ = violations(CASES["outliers"], 100, 0.05)
    assert rate > 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)


def test_what_is_impossible_is_certified_no_more_often_than_delta() -> None:
    """At full coverage an error of a quarter, and outliers of the distribution of the inliers."""
    given = 0
    for k in range(200):
        random = torch.Generator().manual_seed(k)
        selector = ConfidenceSelector().fit(inliers(300, random)[0])
        r, correct = inliers(500, random)
        same = inliers(500, random)[0]
        given += bool(
            selector.certify(r, None, correct, same, max_error=0.4, max_outliers=0.5, min_coverage=0.5, delta=0.1)
        )
    assert given / 200 <= 0.1 + 3 * math.sqrt(0.09 / 200)


def test_an_easy_case_is_certified_and_put_in_force() -> None:
    random = torch.Generator().manual_seed(0)
    selector = ConfidenceSelector().fit(0.5 + 0.5 * torch.rand(500, generator=random))
    sure = 0.5 + 0.5 * torch.rand(1000, generator=random)
    unsure = 0.4 * torch.rand(200, generator=random)
    made = selector.certify(
        sure, None, torch.ones(1000), unsure, max_error=0.01, max_outliers=0.05, min_coverage=0.9, delta=0.05
    )
    assert made
    assert made.coverage > 0.95
    assert (made.errors, made.outliers_accepted, made.total, made.outliers_total) == (0, 0, 1000, 200)
    accepted = selector.accept(sure)
    assert int(accepted.sum()) == made.accepted
    assert float(selector.tau) == made.threshold


def test_every_part_is_tested_by_its_own_exact_tail() -> None:
    """One threshold only: certified exactly where all three binomial tails are at most delta."""
    n, m, delta = 60, 40, 0.1
    grid = [threshold_for_coverage(torch.tensor([0.0, 1.0]), 0.5)]
    promise = Promise(0.2, 0.3, 0.5, delta)
    for accepted, errors, out in itertools.product(range(25, 61, 5), range(0, 12, 2), range(0, 12)):
        gate = torch.zeros(n).index_fill(0, torch.arange(accepted), 1.0)
        correct = torch.ones(n).index_fill(0, torch.arange(errors), 0.0)
        outlier_gate = torch.zeros(m).index_fill(0, torch.arange(out), 1.0)
        made = certify_promise(gate, correct, outlier_gate, grid, promise)
        tails = (
            binom.cdf(errors, accepted, 0.2),
            binom.cdf(out, m, 0.3),
            binom.sf(accepted - 1, n, 0.5),
        )
        assert bool(made) == (max(tails) <= delta)
        if made:
            assert (made.accepted, made.errors, made.outliers_accepted) == (accepted, errors, out)


def test_asking_for_less_never_certifies_less() -> None:
    random = torch.Generator().manual_seed(3)
    selector = ConfidenceSelector().fit(inliers(300, random)[0])
    data = (*inliers(800, random), outliers(400, random))

    def coverage(**case: float) -> float:
        made = selector.certify(data[0], None, data[1], data[2], **case)
        return made.coverage if made else 0.0

    by_outliers = [coverage(max_error=0.2, max_outliers=o) for o in (0.1, 0.2, 0.3, 0.5)]
    by_delta = [coverage(max_error=0.2, max_outliers=0.3, delta=d) for d in (0.01, 0.05, 0.2)]
    assert by_outliers == sorted(by_outliers)
    assert by_delta == sorted(by_delta)
    assert by_outliers[0] < by_outliers[-1]


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(0, 1))
def test_the_bound_on_wrong_answers_is_the_worst_stream(e: float, o: float, k: float, share: float) -> None:
    """The largest value over a grid of what the certificate leaves open, its corner included."""
    bound = Certificate(e, o, k, 0.1, "x", 0.5).wrong_answers(share)
    grid = itertools.product(np.linspace(0, e, 4), np.linspace(0, o, 4), np.linspace(k, 1, 4), np.linspace(0, share, 4))
    worst = max(
        ((1 - p) * coverage * error + p * accepted) / ((1 - p) * coverage + p * accepted)
        for error, accepted, coverage, p in grid
        if (1 - p) * coverage + p * accepted > 0
    )
    assert bound == pytest.approx(worst)


def test_the_bound_by_hand() -> None:
    made = Certificate(0.05, 0.1, 0.7, 0.1, "digits", 0.8)
    assert made.wrong_answers(0) == pytest.approx(0.05)
    assert made.wrong_answers(1) == 1
    assert made.wrong_answers(0.1) == pytest.approx((0.9 * 0.7 * 0.05 + 0.1 * 0.1) / (0.9 * 0.7 + 0.1 * 0.1))
    with pytest.raises(ValueError, match="share must lie"):
        made.wrong_answers(1.5)
    with pytest.raises(ValueError, match="min_coverage must be promised"):
        Certificate(0.05, 0.1, threshold=0.8).wrong_answers(0.1)
    with pytest.raises(ValueError, match="nothing was certified"):
        Certificate(0.05, 0.1, 0.7).wrong_answers(0.1)


def test_sentences() -> None:
    made = Certificate(0.05, 0.1, None, 0.1, "street-view digits", 0.8)
    assert made.sentence() == str(made)
    for part in ("at least 90 %", "at most 5 %", "at most 10 %", "street-view digits", "about other outliers"):
        assert part in made.sentence()
    none = Certificate(0.05, 0.1, 0.7, 0.1, "digits", total=1000, outliers_total=10)
    assert not none
    assert "No threshold could be certified from 1000" in none.sentence()
    assert "At least 22 outliers are needed." in none.sentence()
    assert "needed" not in Certificate(0.05, 0.1, 0.7, 0.1, "digits", total=1000, outliers_total=100).sentence()


@pytest.mark.parametrize(("limit", "level"), [(0.05, 0.1), (0.01, 0.05), (0.3, 0.2)])
def test_the_fewest_examples_that_can_show_anything(limit: float, level: float) -> None:
    least = examples_needed(limit, level)
    assert (1 - limit) ** least <= level < (1 - limit) ** (least - 1)


def test_of_few_examples_half_are_enough_to_start_with() -> None:
    """With 45 right answers of 45 an error of 5 % can be certified, with half that error rate only beyond 100."""
    grid = [Threshold(0.5, n / 100, n / 100, n, 100) for n in range(1, 101)]
    assert examples_needed(0.05, 0.1) == 45
    assert _first(grid, 100, Promise(0.05, 0.1, None, 0.1)) == 49  # of 50 examples
    assert _first(grid, 80, Promise(0.05, 0.1, None, 0.1)) == 56  # of 45.6 of 80


@pytest.mark.parametrize("wanted", [0.0005, 0.1, 0.4, 0.9])
def test_testing_starts_where_an_unlucky_sample_shows_the_coverage(wanted: float) -> None:
    """Two standard deviations of both samples below the expected coverage."""
    n, delta = 100, 0.1
    grid = [Threshold(0.5, k / 200, k / 200, k, 200) for k in range(1, 201)]

    def shows(share: float) -> bool:
        deviation = math.sqrt(share * (1 - share) / n + share * (1 - share) / 200)
        unlucky = math.floor(n * (share - 2 * deviation))
        return unlucky > 0 and beta.ppf(delta, unlucky, n - unlucky + 1) >= wanted

    start = _first(grid, n, Promise(0.9, 0.1, None, delta))
    expected = next((j for j in range(start, 200) if shows(grid[j].achieved)), 199)
    assert _first(grid, n, Promise(0.9, 0.1, wanted, delta)) == expected


def test_nothing_counted_is_no_coverage() -> None:
    made = Certificate(0.05, 0.1, 0.7, 0.1, "digits")
    assert not made
    assert math.isnan(made.coverage)
    counts = (made.accepted, made.total, made.errors, made.outliers_accepted, made.outliers_total)
    assert counts == (0, 0, 0, 0, 0)


@pytest.mark.parametrize("threshold", [None, 0.25, math.inf, -math.inf])
def test_a_certificate_is_its_dictionary(threshold: float | None) -> None:
    made = Certificate(0.05, 0.1, 0.7, 0.1, "digits", threshold, 760, 1000, 21, 70, 1000)
    text = json.dumps(made.to_dict(), allow_nan=False)
    assert Certificate.from_dict(json.loads(text)) == made


@pytest.mark.parametrize(
    "change",
    [
        {"max_error": 2},
        {"max_outliers": "0.1"},
        {"delta": 0},
        {"min_coverage": True},
        {"population": " "},
        {"threshold": "high"},
        {"threshold": math.nan},
        {"accepted": 1001},
        {"errors": 1.5},
        {"outliers_accepted": -1},
        {"more": 1},
    ],
)
def test_what_was_read_is_checked(change: dict[str, object]) -> None:
    good = Certificate(0.05, 0.1, 0.7, 0.1, "digits", 0.5, 760, 1000, 21, 70, 1000).to_dict()
    with pytest.raises(ValueError, match=r"must|fit together|has the fields"):
        Certificate.from_dict({**good, **change})
    with pytest.raises(ValueError, match="has the fields"):
        Certificate.from_dict({name: value for name, value in good.items() if name != "delta"})


def test_bad_requests_are_refused() -> None:
    random = torch.Generator().manual_seed(0)
    r, correct = inliers(200, random)
    scores, far = torch.randn(200, 2, generator=random), torch.randn(60, 2, generator=random) + 3
    out = outliers(60, random)
    selector = Selector(zeta=0.1, training=Training(steps=5))
    selector.fit(r, scores, correct, outlier_confidence=out, outlier_scores=far)
    limits = {"max_error": 0.3, "max_outliers": 0.3}
    with pytest.raises(ValueError, match="confidence and scores are those the selector was fitted on"):
        selector.certify(r.flip(0), scores.flip(0), correct.flip(0), out, far, **limits)
    fresh = (r * 0.9, scores, correct)
    with pytest.raises(ValueError, match="the outliers are those the selector was fitted on"):
        selector.certify(*fresh, out.flip(0), far.flip(0), **limits)
    with pytest.raises(ValueError, match="max_error must lie in"):
        selector.certify(*fresh, out * 0.9, far, max_error=1.0, max_outliers=0.1)
    with pytest.raises(ValueError, match="scores have 0 columns"):
        selector.certify(*fresh, out * 0.9, **limits)
    with pytest.raises(ValueError, match="starts"):
        selector.certify(*fresh, out * 0.9, far, **limits, starts=0)
    with pytest.raises(ValueError, match="coverages is empty"):
        selector.certify(*fresh, out * 0.9, far, **limits, coverages=())
    with pytest.raises(ValueError, match="outlier_confidence is empty"):
        selector.certify(*fresh, out[:0], far[:0], **limits)


def test_nothing_certified_changes_nothing() -> None:
    random = torch.Generator().manual_seed(0)
    selector = ConfidenceSelector().fit(inliers(300, random)[0])
    selector.threshold(coverage=0.3)
    before = selector.tau.clone()
    r, correct = inliers(100, random)
    assert not selector.certify(r, None, correct, outliers(100, random), max_error=0.001, max_outliers=0.1)
    assert torch.equal(before, selector.tau)
