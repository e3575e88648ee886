"""A measure that a module outside the package declares shows up by name wherever ours do."""

from __future__ import annotations

import csv
import importlib
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from browser import needs_browser, opened
from experiment_labs import TINY
from synthetic import evaluation

from calibrant.cli.output import print_results
from calibrant.deploy.reporting import write_table
from calibrant.evaluation import Evaluation, Resampling, coverage_curves, summarize
from calibrant.evaluation.summary import CALLED
from calibrant.metrics import catalogue, declarations, expected_calibration_error
from calibrant.predictions import Predictions
from calibrant.report import write_page
from calibrant.studies import Lab, open_lab
from calibrant.studies.coverage_study import row as coverage_row
from calibrant.studies.measuring import measure
from calibrant.studies.study import full_row
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial

FAST = Resampling(resamples=20)
MODULE = """
import numpy as np
import calibrant

@calibrant.measure("confident errors", "lower", "percent", "wrong with confidence above 0.9, of the accepted")
def confident_errors(confidence, correct):
    return np.mean((confidence > 0.9) & ~correct)

@calibrant.measure("log odds", "higher", "number", "difference of mean log odds", of="accepted ID and OOD")
def log_odds(id_confidence, ood_confidence):
    return np.mean(np.log(id_confidence / (1 - id_confidence))) - np.mean(np.log(ood_confidence / (1 - ood_confidence)))

@calibrant.measure("my ECE", "lower", "percent", "the ECE by another road", name="my_ece", show="page")
def by_rows(confidence, correct, bins):
    return calibrant.metrics.expected_calibration_error(confidence, correct, bins=bins)

@calibrant.measure("my accuracy", "higher", "percent", "the accuracy by another road", name="my_accuracy", show="page")
def right_by_rows(correct):
    return np.mean(correct)

@calibrant.measure("both given", "lower", "percent", "answers given", of="all ID and OOD")
def both_given(id_accepted, ood_accepted):
    return np.mean(np.concatenate([id_accepted, ood_accepted]))

@calibrant.measure("most", "neither", "number", "largest acceptance", of="all ID")
def most(acceptance):
    return acceptance.max()
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    catalogue()
    monkeypatch.setattr(declarations, "_declared", dict(declarations._declared))
    (tmp_path / "measures_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("measures_of_mine")
    yield
    del sys.modules["measures_of_mine"]


@pytest.fixture
def group() -> list[Evaluation]:
    return [evaluation("FNN", seed, n=800) for seed in (0, 1)]


@pytest.mark.usefixtures("plugin")
def test_its_values_are_the_functions_of_what_is_accepted(group: list[Evaluation]) -> None:
    rows = summarize(group, [1.0, 0.8], resampling=FAST)
    found = next(row for row in rows if (row.wanted_coverage, row.ood) == (0.8, "near"))
    expected, odds, given = [], [], []
    for one in group:
        cut = np.sort(one.id.acceptance)[::-1][639]
        kept, through = one.id.acceptance >= cut, one.ood["near"].acceptance >= cut
        inside, far = one.id.confidence[kept], one.ood["near"].confidence[through]
        expected.append(np.mean((inside > 0.9) & ~one.id.correct[kept]))
        odds.append(np.mean(np.log(inside / (1 - inside))) - np.mean(np.log(far / (1 - far))))
        given.append(np.r_[kept, through].mean())
    assert found.measures["confident_errors"].estimate == pytest.approx(np.mean(expected))
    assert found.log_odds.estimate == pytest.approx(np.mean(odds), rel=1e-5)
    assert found.both_given.estimate == pytest.approx(np.mean(given))
    assert found.most.estimate == pytest.approx(np.mean([one.id.acceptance.max() for one in group]))
    (curves,) = coverage_curves(group, [0.8, 1.0])
    assert curves.measures["confident_errors"][:, 0] == pytest.approx(expected)
    assert curves.ood["near"]["both_given"][:, 1] == pytest.approx(1.0)
    assert "most" not in curves.measures


@pytest.mark.usefixtures("plugin")
def test_its_interval_is_that_of_a_weighted_measure(group: list[Evaluation], monkeypatch: pytest.MonkeyPatch) -> None:
    """Called on resampled rows or evaluated under weights, from the same resamples: the same limits.

    Only of our own ECE is it known that it is a sum of norms, which has an interval of its own, and only of our own
    accuracy that it is a share, whose interval is widened to Wilson's.
    """
    monkeypatch.setattr("calibrant.evaluation.summary.widened", lambda measures, *_, **__: measures)
    for row in summarize(group, [1.0, 0.5], resampling=FAST):
        assert row.my_ece.estimate == pytest.approx(row.ece.estimate, abs=1e-9)
        assert row.ece.low <= row.ece.estimate <= row.ece.high
        for limit in ("estimate", "low", "high"):
            assert getattr(row.my_accuracy, limit) == pytest.approx(getattr(row.accuracy, limit), abs=1e-9)


@pytest.mark.usefixtures("plugin")
def test_it_is_called_for_a_hundred_resamples_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counting(confidence: np.ndarray) -> float:
        calls.append(len(confidence))
        return 0.0

    monkeypatch.setitem(declarations._declared, "count", replace(catalogue()["confident_errors"], function=counting))
    one = replace(evaluation("FNN", n=50), ood={})
    summarize([one], [1.0], resampling=Resampling(resamples=500))
    assert len(calls) == CALLED + 1
    assert set(calls) == {50}


@pytest.mark.usefixtures("plugin")
def test_files_and_the_terminal_show_it(
    group: list[Evaluation], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = summarize(group, resampling=FAST)
    write_table(tmp_path / "table.csv", rows)
    with (tmp_path / "table.csv").open() as file:
        first = next(csv.DictReader(file))
    assert float(first["confident_errors"]) == rows[0].confident_errors.estimate
    assert {"log_odds_low", "log_odds_high", "my_ece", "both_given", "most"} < set(first)
    assert json.loads(json.dumps(rows[0].flat(), allow_nan=False))["log_odds"] == rows[0].log_odds.estimate
    print_results(rows)
    told = capsys.readouterr().out
    for word in ("confident", "log odds", "given", "most"):
        assert word in told
    assert "my ECE" not in told
    assert f"{rows[0].log_odds.estimate:.4g}" in told


@pytest.mark.usefixtures("plugin")
def test_the_page_shows_it(group: list[Evaluation], tmp_path: Path) -> None:
    path = write_page(tmp_path / "page.html", group, summary=summarize(group, resampling=FAST))
    found = re.search(r'id="payload">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    payload = json.loads(found[1])
    assert {one["name"]: one["unit"] for one in payload["measures"]}["log_odds"] == "number"
    assert {one["name"]: one["slides"] for one in payload["measures"]}["confident_errors"]
    assert "wrong with confidence above 0.9" in path.read_text().partition('id="payload"')[0]


@pytest.mark.usefixtures("plugin")
@needs_browser[0]
@needs_browser[1]
def test_the_page_moves_it_with_the_slider(group: list[Evaluation], tmp_path: Path) -> None:
    path = write_page(tmp_path / "page.html", group, summary=summarize(group, resampling=FAST))
    (curves,) = coverage_curves(group, [0.6])
    with opened(path) as visit:
        visit.move(60)
        assert visit.number("confident_errors") == pytest.approx(curves.confident_errors.mean(), abs=1e-6)
        odds = float(curves.ood["near"]["log_odds"].mean())
        assert visit.number("log_odds") == pytest.approx(odds, abs=1e-6)
        shown = visit.page.locator("#table tr.chosen td[data-key=log_odds]").text_content()
        assert float(shown) == pytest.approx(odds, rel=1e-3)
        visit.page.locator("#more-curves summary").click()
        assert visit.page.locator("#other-curves [data-chart=confident_errors] path.line").count() > 0
        assert visit.page.locator("#table thead").get_by_text("Confident errors").count() == 1
        assert visit.complaints == []


def recorded(folder: Path) -> tuple[Lab, StudyTrial]:
    """A lab with the record of one trial, measured with what is declared now."""
    lab = open_lab("embedded", results=folder / "results", runs=folder / "runs", overrides=[*TINY, "study.seeds=[0]"])
    trial = StudyTrial("FNN", 0)
    lab.write_record(trial, measure(evaluation("FNN", n=120), [0.5], bins=15, count=12))
    return lab, trial


def test_studies_show_it_and_records_without_it_are_drawn_as_before(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lab, trial = recorded(tmp_path / "before")
    before = [coverage_row(lab, "FNN", trial, 0.5), full_row(lab, "FNN", trial)]
    request.getfixturevalue("plugin")
    again = [coverage_row(lab, "FNN", trial, 0.5), full_row(lab, "FNN", trial)]
    assert StudyTable(again).markdown() == StudyTable(before).markdown()
    assert [list(row) for row in again] == [list(row) for row in before]
    assert lab.is_fresh(trial, [0.5])

    lab, trial = recorded(tmp_path / "after")
    rows = [coverage_row(lab, "FNN", trial, coverage) for coverage in (0.5, 1.0)]
    text = StudyTable([*rows, before[0]]).markdown().splitlines()
    for column in ("confident errors", "log odds, near", "both given, far"):
        assert column in text[0]
    assert "my ECE" not in text[0]
    assert "my ECE" in rows[0]
    cells = dict(zip(text[0].split("|"), text[4].split("|")))
    assert cells[" confident errors "].strip() == ""  # the record that lacks it shows nothing


def test_a_record_holds_the_stream_measures_with_their_draws(tmp_path: Path) -> None:
    lab, trial = recorded(tmp_path)
    wrong = lab.estimate(trial, "wrong_at_10:near", 0.5)
    assert len(wrong.draws) == 12
    assert math.isnan(lab.estimate(trial, "wrong_at_10:far", 0.5).interval().low)
    assert lab.has(trial, "augrc", 1.0)
    assert not lab.has(trial, "augrc", 0.5)


@pytest.mark.usefixtures("plugin")
def test_rows_that_stand_for_many_inputs_leave_it_undefined() -> None:
    counted = Predictions([0.6, 0.9], [0, 1], [0, 0], count=np.array([10**9, 10**9]))
    (row,) = summarize([Evaluation("A", 0, counted)], [1.0], resampling=FAST)
    assert math.isnan(row.confident_errors.estimate)
    assert row.ece.estimate == pytest.approx(expected_calibration_error([0.6, 0.9], [1, 0]))


@pytest.mark.usefixtures("plugin")
def test_what_is_no_number_is_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(catalogue()["confident_errors"], name="broken", function=lambda confidence: "many")
    monkeypatch.setitem(declarations._declared, "broken", wrong)
    with pytest.raises(ValueError, match="measure broken returned str; it must return one number"):
        summarize([evaluation("FNN", n=40)], [1.0], resampling=FAST)


def test_a_row_names_what_it_lacks() -> None:
    (row,) = summarize([replace(evaluation("FNN", n=40), ood={})], [1.0], resampling=FAST)
    with pytest.raises(AttributeError, match="a row has no measure 'unheard'; it has coverage, accuracy"):
        row.unheard  # noqa: B018
