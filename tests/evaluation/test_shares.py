from __future__ import annotations

import math

import numpy as np
import pytest

from calibrant.evaluation import Evaluation, Resampling, summarize
from calibrant.evaluation.shares import widened
from calibrant.metrics import Interval
from calibrant.metrics.proportion import proportion
from calibrant.predictions import Predictions


def perfect(rows: int, outliers: int) -> Evaluation:
    """All answers right and surer than all outliers."""
    zeros = np.zeros(rows, np.int64)
    inside = Predictions(np.linspace(0.6, 0.9, rows), zeros, zeros).numpy()
    far = Predictions(np.full(outliers, 0.3), np.zeros(outliers, np.int64)).numpy()
    return Evaluation("a", 0, inside, {"far": far})


def test_none_and_all_have_the_interval_of_wilson() -> None:
    row, half = summarize([perfect(100, 40)], (1.0, 0.5), resampling=Resampling(resamples=50))
    assert row.accuracy == proportion(100, 100)
    assert row.wrong_at_0.high == pytest.approx(1 - row.accuracy.low)
    assert row.ood_acceptance == Interval(1.0, 1.0, 1.0)  # everything is accepted: nothing to be told
    assert half.ood_acceptance == proportion(0, 40)
    assert half.wrong_at_0.high > row.wrong_at_0.high  # of half as many answers


def test_intervals_in_a_stream_cover_at_zero() -> None:
    """Exact rates of coverage: rare errors and rare outliers, where resampling often sees none."""
    rng = np.random.default_rng(0)
    error, through, pi, kept, outliers = 0.02, 0.02, 0.5, 80, 50
    truth = ((1 - pi) * 0.8 * error + pi * through) / ((1 - pi) * 0.8 + pi * through)
    held = 0
    for _ in range(2000):
        e, o = rng.binomial(kept, error) / kept, rng.binomial(outliers, through) / outliers
        value = ((1 - pi) * 0.8 * e + pi * o) / ((1 - pi) * 0.8 + pi * o)
        measures = {
            name: Interval(x, x, x) for name, x in (("wrong_at_0", e), ("ood_acceptance", o), ("coverage", 0.8))
        }
        found = widened(
            {**measures, "wrong_at_50": Interval(value, value, value)}, 0.95, kept, outliers, everything=False
        )
        held += found["wrong_at_50"].low <= truth <= found["wrong_at_50"].high
    assert held / 2000 > 0.93


def test_what_is_undefined_or_has_no_interval_stays_so() -> None:
    nothing = {"accuracy": Interval(math.nan, math.nan, math.nan), "wrong_at_0": Interval(0.5, math.nan, math.nan)}
    found = widened(nothing, 0.95, 0, 0, everything=False)
    assert math.isnan(found["accuracy"].low)
    assert math.isnan(found["wrong_at_0"].low)
