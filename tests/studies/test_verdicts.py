"""Verdicts: intervals within what is possible, p-values and Holm's method against their definitions."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from calibrant.metrics import Interval
from calibrant.metrics.resampling import limits
from calibrant.studies.estimates import Estimate, bounds_of
from calibrant.studies.findings import Finding, better, mean_of, overall, spread, verdicts
from calibrant.studies.multiple_tests import holm
from calibrant.studies.study_table import StudyTable

UNSURE = "cannot be told at this scale"


def normal(value: float, deviation: float, count: int = 2001) -> Estimate:
    """An estimate whose resamples are the quantiles of a normal distribution around it."""
    from scipy.stats import norm

    return Estimate(value, value + deviation * norm.ppf((np.arange(count) + 0.5) / count))


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.0, np.inf, "holds"),
        (0.5, np.inf, "does not hold"),
        (0.21, np.inf, UNSURE),
        (-np.inf, 0.1, "does not hold"),
        (-np.inf, 0.9, "holds"),
        (0.19, 0.21, UNSURE),
        (0.1, 0.3, "holds"),
    ],
)
def test_a_verdict_goes_by_the_whole_interval(low: float, high: float, verdict: str) -> None:
    draws = np.linspace(0.15, 0.25, 101)
    assert verdicts([Finding("x", Estimate(0.2, draws), low, high)], 0.95) == [verdict]


def test_a_claim_holds_only_if_all_of_it_does() -> None:
    assert overall(["holds", "holds"]) == "holds"
    assert overall(["holds", "does not hold", UNSURE]) == "does not hold"
    assert overall([]) == UNSURE
    assert verdicts([Finding("x", Estimate(np.nan, np.full(3, np.nan)))], 0.95) == [UNSURE]


def closed_testing(p_values: list[float]) -> list[float]:
    """Adjusted p-values by definition: the largest Bonferroni p-value of all intersections with the hypothesis."""
    everyone = range(len(p_values))
    subsets = [set(one) for size in everyone for one in combinations(everyone, size + 1)]
    return [max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s) for i in everyone]


@pytest.mark.parametrize("seed", range(20))
def test_holm_is_the_closure_of_bonferroni(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p_values = np.round(rng.random(rng.integers(1, 8)) ** 3, 2).tolist()  # with ties and zeros
    assert holm(p_values) == pytest.approx(closed_testing(p_values))


def test_holm_on_the_numbers_of_a_known_program() -> None:
    # p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm") of R
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([]) == []


@pytest.mark.parametrize("seed", range(10))
def test_a_p_value_inverts_the_interval(seed: int) -> None:
    rng = np.random.default_rng(seed)
    value, draws = 0.3, rng.normal(0.31, 0.05, 400) + rng.exponential(0.02, 400)
    bound = 0.34 + 0.04 * rng.random()
    low, high = 1e-9, 1 - 1e-9  # the level at which the upper end is the bound, by bisection
    for _ in range(60):
        level = (low + high) / 2
        low, high = (low, level) if limits(value, draws, level)[1] > bound else (level, high)
    assert Estimate(value, draws).p_value(low=bound) == pytest.approx((1 - level) / 2, abs=1e-6)
    mirrored = Estimate(-value, -draws).p_value(high=-bound)
    assert mirrored == pytest.approx(Estimate(value, draws).p_value(low=bound))


def test_p_values_of_a_normal_estimate_are_those_of_the_normal_test() -> None:
    from scipy.stats import norm

    for distance in (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0):
        found = normal(0.0, 0.01).p_value(low=0.01 * distance)
        assert found == pytest.approx(norm.sf(distance), abs=1 / 2001)  # one resample
        if distance > 4:  # beyond what 2,001 resamples resolve
            assert found == pytest.approx(norm.sf(distance), rel=0.05)


def test_a_value_in_the_range_has_no_evidence_against_it() -> None:
    biased = Estimate(0.3, np.linspace(0.4, 0.5, 101))  # whose basic interval, [0.1, 0.2], lies below it
    assert biased.p_value(low=0.25) == 1.0
    assert biased.interval().high == 0.3
    assert verdicts([Finding("x", biased, low=0.25)], 0.95) == [UNSURE]
    assert math.isnan(Estimate(0.3, np.full(9, np.nan)).p_value(low=0.5))


def test_the_rejection_of_true_claims_keeps_its_level() -> None:
    """Eight true claims at the edge of their range: any is rejected in at most 2.5 % of the cases, alone in 18 %."""
    moves = np.random.default_rng(0).normal(size=(400, 8))
    corrected, alone = 0, 0
    for row in moves:
        findings = [Finding("x", normal(move, 1.0, 401), low=0.0) for move in row]
        corrected += "does not hold" in verdicts(findings, 0.95)
        alone += any("does not hold" in verdicts([one], 0.95) for one in findings)
    assert corrected / len(moves) < 0.04  # 2.5 % and twice its standard error
    assert 0.12 < alone / len(moves) < 0.26


def test_one_finding_on_the_wrong_side_among_many_is_not_enough() -> None:
    wrong = Finding("wrong", normal(-0.022, 0.01), low=0.0)  # p = 0.014
    others = [Finding("right", normal(0.05, 0.01), low=0.0)] * 3
    assert verdicts([wrong], 0.95) == ["does not hold"]
    assert verdicts([wrong, *others], 0.95) == [UNSURE, "holds", "holds", "holds"]
    clearly = Finding("wrong", normal(-0.05, 0.01, 201), low=0.0)  # p = 3e-7, which 201 resamples alone cannot tell
    assert verdicts([clearly, *others * 8], 0.95)[0] == "does not hold"


def test_bounds_follow_from_those_of_the_parts() -> None:
    one, two = (Estimate(value, np.full(5, value), (0.0, 1.0)) for value in (0.02, 0.5))
    half = Estimate(0.9, np.full(5, 0.9), (0.5, 1.0))
    assert (one - two).bounds == (-1.0, 1.0)
    assert (1.0 - one / half).bounds == (-1.0, 1.0)
    assert (half / one).bounds == (0.5, math.inf)
    assert (one / half - 1.0).bounds == (-1.0, 1.0)
    assert (-half).bounds == (-1.0, -0.5)
    assert ((one - two) / half).bounds == (-math.inf, math.inf)
    assert spread([one, half]).bounds == (0.0, 1.0)
    assert mean_of([one, half]).bounds == (0.0, 1.0)
    assert bounds_of("detection:a") == (0.5, 1.0)
    assert bounds_of("ece") == (0.0, 1.0)
    assert bounds_of("somebodys:a") == (-math.inf, math.inf)


def test_an_interval_stays_within_what_is_possible_and_holds_its_value() -> None:
    small = Estimate(0.009, np.array([0.02, 0.025, 0.03, 0.035]), (0.0, 1.0))  # an ECE, which resampling raises
    found = small.interval()
    assert (found.low, found.high) == (0.0, 0.009)
    assert small.interval(0.95, (0.005, 1.0)).low == 0.005
    assert StudyTable([{"ece": found}]).markdown().splitlines()[2] == "| 0.9 [0.0, 0.9] |"
    assert "| 0.0 [0.0, 1.0] |" in StudyTable([{"corrected": Interval(-0.01, 0.0, 0.01)}]).markdown()


def test_less_is_better_of_errors() -> None:
    gain = normal(-0.05, 0.01)
    for measure, verdict in (("ece", "holds"), ("wrong_at_50:a", "holds"), ("accuracy", "does not hold")):
        assert verdicts([better("x", gain, measure)], 0.95) == [verdict]
    assert verdicts([better("x", gain, "ood_acceptance:a")], 0.95) == ["holds"]
