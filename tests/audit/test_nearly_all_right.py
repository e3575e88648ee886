"""Tables with few wrong answers, or none: what an audit says of them, and what it does not."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from calibrant.audit import audit, measure_remedies
from calibrant.audit.class_table import class_table
from calibrant.audit.sample import Sample
from calibrant.audit.slices import slices
from calibrant.evaluation import Resampling
from calibrant.metrics.proportion import proportion

QUICK = Resampling(resamples=200)


def right(rows: int, confidence: float = 0.99) -> dict[str, Any]:
    return {"confidence": np.full(rows, confidence), "correct": np.ones(rows, int)}


def test_nineteen_right_rows_do_not_tell_whether_it_is_underconfident() -> None:
    found = audit(right(19), resampling=QUICK)
    reach = 1 - proportion(19, 19).low
    assert (found.gap.low, found.gap.high) == pytest.approx((-0.01, -0.01 + reach))
    row = found.rows[0]
    for value in (row.ece, row.ece_mass, row.smece, row.rms_calibration_error):
        assert (value.low, value.high) == pytest.approx((0, 0.01 + reach))
    assert found.diagnosis[0] == (
        "So few rows do not tell whether it is over- or underconfident on the whole: it says 99.0 % on average and is"
        " right in 100.0 %, a gap of -1.0 points (-1.0 to 15.8); the ECE, the mean distance of confidence and accuracy"
        " over bins, is 1.0 % (0.0 to 17.8)."
    )
    assert found.diagnosis[-1] == (
        "None of the 19 answers is wrong, so the calibration is known no more closely than the accuracy, which may lie"
        " between 83.2 and 100.0 %."
    )


def test_what_is_certain_all_the_same_is_said() -> None:
    told = audit(right(200, 0.9), resampling=QUICK).diagnosis
    assert told[0].startswith("Underconfident on the whole: ")
    assert "a gap of -10.0 points (-10.0 to -8.1); " in told[0]
    assert told[0].endswith("is 10.0 % (8.1 to 11.9).")


def test_ten_right_rows_do_not_pass_a_gate_by_the_bound() -> None:
    found = audit(right(10), resampling=QUICK)
    conditions = ["ece > 0.05", "smece > 0.05", "ece_mass > 0.05", "rms_calibration_error > 0.05"]
    assert found.failures(conditions) == []
    assert [sentence.split(":")[0] for sentence in found.failures(conditions, "any")] == conditions
    assert found.failures(["ece > 0.05"], "any") == ["ece > 0.05: ece is 0.01 (0 to 0.2875)"]
    assert found.failures(["ece > 0.05"], "all") == []


def test_a_long_table_that_is_summed_up_in_cells_has_the_same_intervals() -> None:
    rows = 25_000
    found = audit(right(rows), resampling=QUICK, remedies=False)
    assert not found.exact
    reach = 1 - proportion(rows, rows).low
    assert found.rows[0].ece.high == pytest.approx(0.01 + reach, abs=1e-6)
    assert (found.gap.low, found.gap.high) == pytest.approx((-0.01, -0.01 + reach), abs=1e-6)
    assert found.diagnosis[0].startswith("Underconfident on the whole: ")


def test_no_error_above_a_threshold_is_not_an_error_of_zero() -> None:
    confidence = np.concatenate([np.linspace(0.9, 0.99, 180), np.linspace(0.5, 0.6, 20)])
    correct = np.arange(200) < 180
    found = measure_remedies(Sample.of(confidence=confidence, correct=correct), resampling=QUICK)
    (sentence,) = [one for one in found.sentences if one.startswith("A confidence threshold")]
    shown = re.search(r"the error is 0\.0 % \(0\.0 to (\d\.\d)\) instead of 10\.0 %", sentence)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(100 * proportion(0, 160).high, abs=0.2)
    (row,) = [one for one in found.rows if one.measure == "error at 80 % coverage"]
    assert row.after == 0
    assert row.difference.high >= -0.1 + proportion(0, 160).high - 0.002


def test_errors_at_a_threshold_have_the_interval_of_wilson() -> None:
    from calibrant.audit.paired import Bench

    bench = Bench()
    bench.share("none", np.zeros(200), np.arange(200) < 160)
    bench.share("few", np.arange(200) < 5, np.ones(200))
    bench.share("nobody", np.ones(200), np.zeros(200))
    bench.share("many", np.arange(200) < 100, np.ones(200))
    found = bench.run(QUICK)
    none, few = found.interval("none"), found.interval("few")
    assert (none.low, none.high) == pytest.approx((0, proportion(0, 160).high))
    assert few.low <= proportion(5, 200).low
    assert few.high >= proportion(5, 200).high
    assert found.values["nobody"] == 0
    change = found.difference("none", "few")
    above = math.hypot(none.high, 0.025 - proportion(5, 200).low)
    assert change.high == pytest.approx(-0.025 + above)
    assert found.interval("many").high - 0.5 < 0.08


def test_no_recalibration_is_recommended_where_one_more_error_could_undo_it() -> None:
    found = measure_remedies(Sample.of(**right(200)), resampling=QUICK)
    assert found.best is None
    assert found.sentences[0] == (
        "None of the 200 answers is wrong, so it cannot be told what recalibration would gain, and none is recommended."
    )
    assert not any("refinement" in sentence for sentence in found.sentences)
    (loss,) = [row for row in found.rows if row.measure == "log loss"]
    assert loss.after < loss.before
    assert math.isnan(loss.difference.low)
    assert not loss.helps
    assert loss.flat()["low"] is None
    assert found.parts[0].flat()["calibration_low"] is None
    rare = measure_remedies(Sample.of(confidence=np.full(200, 0.3), correct=np.arange(200) < 3), resampling=QUICK)
    assert rare.sentences[0].startswith("Only 3 of the 200 answers are right, so it cannot be told")


def test_classes_and_slices_with_nothing_but_right_answers() -> None:
    table = class_table([0] * 40 + [1] * 40, [0] * 40 + [1] * 40, np.full(80, 0.99))
    reach = 1 - proportion(40, 40).low
    for row in table.classes:
        assert (row.gap.low, row.gap.high) == pytest.approx((-0.01, -0.01 + reach))
        assert (row.ece.low, row.ece.high) == pytest.approx((0, 0.01 + reach), abs=1e-3)
    found = slices({"half": ["a"] * 40 + ["b"] * 40}, np.full(80, 0.99), np.ones(80, int))
    assert {round(one.gap.high, 6) for one in found.slices} == {round(-0.01 + reach, 6)}
