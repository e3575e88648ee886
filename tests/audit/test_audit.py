from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from calibrant import metrics
from calibrant.audit import AuditResult, audit
from calibrant.audit.cells import EXACT_ROWS, Accumulator
from calibrant.audit.columns import Rows
from calibrant.audit.diagnosis import _tails, _where
from calibrant.evaluation import Evaluation, Resampling, coverage_curves, summarize

FAST = Resampling(resamples=30)


def draw(n: int, seed: int = 0, over: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.beta(6, 1.2, n), 6)
    return confidence, rng.random(n) < np.clip(confidence - over, 0, 1)


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    lines = zip(*columns.values())
    path.write_text(",".join(columns) + "\n" + "".join(",".join(map(str, line)) + "\n" for line in lines))
    return path


def write(path: Path, columns: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **columns)
        return path
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return path
    return write_csv(path, columns)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_every_kind_of_table_gives_the_librarys_measures(kind: str, tmp_path: Path) -> None:
    confidence, correct = draw(400)
    label = np.arange(400) % 10
    columns = {"confidence": confidence, "label": label, "predicted": np.where(correct, label, (label + 1) % 10)}
    other = {"confidence": draw(200, 1)[0] / 2}
    result = audit(write(tmp_path / f"preds.{kind}", columns), write(tmp_path / f"away.{kind}", other), resampling=FAST)
    full = result.rows[0]
    assert result.exact
    assert (full.n_id, full.n_ood, full.ood) == (400, 200, "away")
    assert full.accuracy.estimate == pytest.approx(correct.mean())
    assert full.ece.estimate == pytest.approx(metrics.expected_calibration_error(confidence, correct))
    expected = metrics.ood_detection_probability(confidence, other["confidence"])
    assert full.detection.estimate == pytest.approx(expected)
    assert full.auroc.estimate == pytest.approx(metrics.auroc(1 - confidence, 1 - other["confidence"]))
    assert full.accuracy.low < full.accuracy.estimate < full.accuracy.high


def probabilities(n: int = 50) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.dirichlet([1, 1, 1], n), rng.integers(3, size=n)


@pytest.mark.parametrize("form", ["numbers", "names", "names-by-position", "list", "fixed", "matrix", "prefix"])
def test_probabilities_come_in_many_forms(form: str, tmp_path: Path) -> None:
    p, label = probabilities()
    names = ["cat", "dog", "owl"]
    path, options = tmp_path / "preds.csv", {}
    columns: dict[str, Any] = {f"p_{c}": p[:, c] for c in range(3)}
    if form == "names":
        columns, label_column = {f"prob_{name}": p[:, c] for c, name in enumerate(names)}, np.array(names)[label]
    elif form == "names-by-position":
        columns, label_column = {f"prob_{name}": p[:, c] for c, name in enumerate(names)}, label
    elif form == "prefix":
        columns, label_column, options = {f"out {c}": p[:, c] for c in range(3)}, label, {"probabilities": "out "}
    else:
        label_column = label
    if form == "list":
        path, columns = tmp_path / "preds.parquet", {"probabilities": [row.tolist() for row in p]}
    elif form == "fixed":
        flat = pa.FixedSizeListArray.from_arrays(pa.array(p.ravel()), 3)
        path, columns = tmp_path / "preds.parquet", {"probabilities": flat}
    elif form == "matrix":
        path, columns = tmp_path / "preds.npz", {"probabilities": p}
    result = audit(write(path, {**columns, "label": label_column}), columns=options, resampling=FAST)
    assert result.rows[0].accuracy.estimate == pytest.approx((p.argmax(1) == label).mean())
    expected = metrics.expected_calibration_error(p.max(1), p.argmax(1) == label)
    assert result.rows[0].ece.estimate == pytest.approx(expected, abs=1e-9)


def test_text_labels_and_columns_of_ones_own(tmp_path: Path) -> None:
    columns = {"sure": [0.9, 0.6, 0.7], "gold": ["a", "b", "b"], "guess": ["a", "b", "a"]}
    chosen = {"confidence": "sure", "label": "gold", "predicted": "guess"}
    result = audit(write_csv(tmp_path / "p.csv", columns), columns=chosen, resampling=FAST, page=tmp_path / "p.html")
    assert result.rows[0].accuracy.estimate == pytest.approx(2 / 3)
    text = (tmp_path / "p.html").read_text()
    assert '"label":"b","predicted":"a"' in text


def test_a_confidence_and_a_label_of_zero_and_one_say_right_or_wrong_only_if_told_so(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "p.csv", {"confidence": [0.9, 0.6, 0.7], "label": [1, 0, 1]})
    refuse("nothing says what was predicted.*--score confidence --positive 1.*--correct label", path)
    result = audit(path, columns={"correct": "label"}, resampling=FAST)
    assert result.rows[0].accuracy.estimate == pytest.approx(2 / 3)


def stream(confidence: np.ndarray, correct: np.ndarray | None, size: int) -> Accumulator:
    cells = Accumulator()
    for start in range(0, len(confidence), size):
        part = slice(start, start + size)
        right = None if correct is None else correct[part]
        cells.add(Rows(start, confidence[part], right, None, None, 0.0))
    return cells


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_long_tables_keep_exact_sums_and_close_orders(dtype: type) -> None:
    n = EXACT_ROWS + 5000
    confidence, correct = draw(n)
    confidence = confidence.astype(dtype)
    confidence[:300] = np.asarray(np.arange(300) % 16 / 15, dtype)  # on the edges of the bins
    cells = stream(confidence, correct, 3000)
    far = stream(confidence[: EXACT_ROWS + 1] ** 2, None, 7000)
    assert not cells.exact
    outcome = cells.outcome()
    assert outcome.total == n
    assert len(outcome) < 2 * 2**14 + 100
    one = Evaluation("long", 0, outcome, {"far": far.outcome()})
    row = summarize([one], [1.0], resampling=FAST)[0]
    assert row.accuracy.estimate == pytest.approx(correct.mean(), abs=1e-12)
    assert row.ece.estimate == pytest.approx(metrics.expected_calibration_error(confidence, correct), abs=1e-8)
    assert row.aurc.estimate == pytest.approx(metrics.aurc(confidence, correct), abs=2e-4)
    levels = confidence, confidence[: EXACT_ROWS + 1] ** 2
    assert row.detection.estimate == pytest.approx(metrics.ood_detection_probability(*levels), abs=1e-12)
    scores = 1 - levels[0].astype(np.float64), 1 - levels[1].astype(np.float64)
    assert row.auroc.estimate == pytest.approx(metrics.auroc(*scores), abs=2e-4)
    (curve,) = coverage_curves([one], [1.0])
    diagram = metrics.reliability_diagram(confidence, correct)
    np.testing.assert_array_equal(curve.reliability(0).count, diagram.count)
    np.testing.assert_allclose(curve.reliability(0).accuracy, diagram.accuracy)


@settings(deadline=None, max_examples=8)
@given(st.integers(400, 9000), st.integers(0, 3))
def test_cells_do_not_depend_on_how_the_table_was_cut(size: int, seed: int) -> None:
    confidence, correct = draw(EXACT_ROWS + 1, seed)
    first, second = stream(confidence, correct, size).outcome(), stream(confidence, correct, 10_000).outcome()
    np.testing.assert_array_equal(first.count, second.count)
    np.testing.assert_allclose(first.confidence, second.confidence)


def test_a_long_file_streams_with_progress_and_shows_its_extreme_rows(tmp_path: Path) -> None:
    n = EXACT_ROWS * 20
    confidence, correct = draw(n)
    confidence = np.minimum(confidence, 0.99)
    confidence[123_456], correct[123_456] = 0.999, False
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"confidence": confidence, "correct": correct}), path)
    seen: list[tuple[float, int]] = []
    result = audit(
        path, page=tmp_path / "p.html", resampling=FAST, progress=lambda done, rows: seen.append((done, rows))
    )
    assert not result.exact
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (1.0, n)
    assert (tmp_path / "p.html").stat().st_size < 5_000_000
    assert '"kind":"mistake","dataset":"id","row":123456' in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize(
    ("over", "words"), [(0.15, "Overconfident on the whole"), (-0.15, "Underconfident on the whole"), (0, "neither")]
)
def test_the_diagnosis_says_over_or_under_and_where(over: float, words: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.3, 0.8, 4000)
    correct = rng.random(4000) < confidence - over
    path = tmp_path / "p.npz"
    np.savez(path, confidence=confidence, correct=correct)
    told = audit(path, resampling=FAST).diagnosis
    assert words in told[0]
    if over > 0:
        assert "overconfident by 1" in told[1]
        assert "from 27 to 80 %" in told[1]
    elif over < 0:
        assert "underconfident by 1" in told[1]


@pytest.mark.parametrize(("low", "n"), [(0.0, 100), (0.0, 5000), (0.6, 100), (0.6, 5000)])
def test_of_a_calibrated_system_no_range_stands_out_but_by_chance(low: float, n: int) -> None:
    """Beyond the 95 % limits of its own lies some one of 15 bins in every second table."""
    rng, told = np.random.default_rng(0), []
    for _ in range(200):
        confidence = low + (1 - low) * rng.beta(4, 1, n)
        correct = rng.random(n) < confidence
        told.append(_where(metrics.reliability_diagram(confidence, correct)))
    beyond = [sentence for sentence in told if sentence.startswith("It is")]
    assert len(beyond) <= 0.08 * len(told)
    correct = rng.random(n) < confidence - 0.3
    assert _where(metrics.reliability_diagram(confidence, correct)).startswith("It is overconfident by")


def test_tails_are_those_of_the_binomial_distribution() -> None:
    count, right = np.array([0.0, 1, 5, 7, 40, 40]), np.array([0.0, 0, 5, 2, 40, 11])
    said = count * np.array([0.0, 0.6, 0.9, 0.5, 1.0, 0.25])
    rate = said / np.maximum(count, 1)
    np.testing.assert_allclose(_tails(count, said, right, 1), binom.cdf(right, count, rate), rtol=1e-9)
    np.testing.assert_allclose(_tails(count, said, right, -1), binom.sf(right - 1, count, rate), rtol=1e-9)


def test_one_error_among_few_certain_answers_is_no_finding() -> None:
    diagram = metrics.reliability_diagram([0.99] * 10 + [0.55] * 10, [1] * 9 + [0] + [1] * 5 + [0] * 5)
    assert _where(diagram) == "In no range of confidence is it further off than chance explains."


def test_a_gap_on_the_whole_that_no_single_range_shows_is_no_contradiction() -> None:
    confidence = np.repeat((np.arange(15) + 0.5) / 15, 40)
    correct = np.concatenate([np.arange(40) < round(40 * level) - 2 for level in (np.arange(15) + 0.5) / 15])
    told = audit({"confidence": confidence, "correct": correct}, resampling=FAST, remedies=False).diagnosis
    assert told[0].startswith("Overconfident on the whole")
    assert told[1] == "No single range of confidence stands out."


@pytest.mark.parametrize("n", [1, 2, 7])
def test_single_rows_and_zeros_are_written_as_people_write_them(n: int) -> None:
    told = audit({"confidence": [1 - 1e-9] * n, "correct": [1] * n}, resampling=FAST)
    assert "-0.0" not in str(told)
    assert "a gap of 0.0 points (0.0 to" in told.diagnosis[0]
    first = "There is only 1 row" if n == 1 else f"There are only {n} rows"
    assert sum(first in sentence for sentence in told.sentences) == 2
    ending = "The only answer is right, so" if n == 1 else f"None of the {n} answers is wrong, so"
    assert any(sentence.startswith(ending) for sentence in told.diagnosis)
    assert repr(told).splitlines()[-1] == "  ... and 2 more sentences"
    more = [*told.diagnosis[:3]]
    assert repr(replace(told, diagnosis=more)).splitlines()[-1] == "  ... and 1 more sentence"


def test_it_says_where_both_happen(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0, 1, 20_000)
    correct = rng.random(20_000) < 0.5 + 0.5 * (confidence - 0.5)
    np.savez(tmp_path / "p.npz", confidence=confidence, correct=correct)
    told = audit(tmp_path / "p.npz", resampling=FAST).diagnosis
    assert "overconfident by" in told[1]
    assert "to 100 %" in told[1]
    assert "underconfident by" in told[1]
    assert "from 0 to" in told[1]


def test_ten_rows_are_measured_and_called_few(tmp_path: Path) -> None:
    confidence, correct = draw(10)
    path = write_csv(tmp_path / "p.csv", {"confidence": confidence, "correct": correct.astype(int)})
    result = audit(path, write_csv(tmp_path / "o.csv", {"confidence": confidence}), page=tmp_path / "p.html")
    assert any("only 10 rows" in sentence for sentence in result.diagnosis)
    assert any("too few rows" in sentence for sentence in result.diagnosis)
    assert result.rows[0].accuracy.high - result.rows[0].accuracy.low > 0.3
    assert math.isnan(result.rows[0].detection.estimate)
    json.dumps([row.flat() for row in result.rows], allow_nan=False)


def refuse(message: str, *arguments: Any, **options: Any) -> AuditResult | None:
    with pytest.raises(ValueError, match=message) as caught:
        audit(*arguments, **options)
    assert "\n" not in str(caught.value)
    return None


def test_files_that_are_no_tables_are_refused_in_one_sentence(tmp_path: Path) -> None:
    refuse("does not exist", tmp_path / "nowhere.csv")
    refuse("is a folder", tmp_path)
    (tmp_path / "x.png").write_bytes(b"\x89PNG")
    refuse("is no table that can be read", tmp_path / "x.png")
    (tmp_path / "x.csv").write_bytes(b"\x89PNG\0\0\1\2")
    refuse("holds binary data", tmp_path / "x.csv")
    (tmp_path / "empty.csv").write_text("")
    refuse("is empty", tmp_path / "empty.csv")
    (tmp_path / "head.csv").write_text("confidence,correct\n")
    refuse("holds no rows", tmp_path / "head.csv")
    (tmp_path / "ragged.csv").write_text("confidence,correct\n0.5,1\n0.5,1,7\n")
    refuse("is not a table that can be read", tmp_path / "ragged.csv")
    (tmp_path / "x.parquet").write_text("no table")
    refuse("is not a table that can be read", tmp_path / "x.parquet")
    (tmp_path / "x.npz").write_text("no table")
    refuse("is not a whole NPZ file", tmp_path / "x.npz")


def test_wrong_columns_name_what_is_there_and_the_nearest(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "p.csv", {"confidense": [0.5], "lable": [1]})
    refuse(r"no column 'confidence'; it has confidense, lable; did you mean 'confidense'\?", path)
    refuse(r"no column 'label'.*did you mean 'lable'\?", path, columns={"confidence": "confidense"})
    refuse("has no column 'gold'", path, columns={"label": "gold"})
    refuse("names the role 'truth'; there are confidence", path, columns={"truth": "lable"})


def test_wrong_values_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    refuse(
        "do not sum to 1: in row 1 they sum to 1.4",
        write_csv(path, {"p_0": [0.5, 0.9], "p_1": [0.5, 0.5], "label": [0, 1]}),
    )
    refuse("confidence must lie in", write_csv(path, {"confidence": [0.5, 1.5], "correct": [0, 1]}))
    np.savez(tmp_path / "n.npz", confidence=np.array([0.5, np.nan]), correct=np.array([1, 0]))
    refuse("confidence holds NaN", tmp_path / "n.npz")
    refuse("no value in column 'confidence' of row 1", write_csv(path, {"confidence": [0.5, ""], "correct": [0, 1]}))
    refuse("is not a table that can be read", write_csv(path, {"confidence": [0.5, "high"], "correct": [0, 1]}))
    refuse("must hold only 0", write_csv(path, {"confidence": [0.5, 0.6], "correct": [0, 2]}))
    refuse("name the column of what was predicted", write_csv(path, {"confidence": [0.5, 0.6], "label": [0, 2]}))
    refuse("has the label '7', but the classes are 0, 1", write_csv(path, {"p_0": [0.5], "p_1": [0.5], "label": [7]}))
    refuse("text and numbers", write_csv(path, {"confidence": [0.5], "label": ["a"], "predicted": [1]}))
    np.savez(tmp_path / "p.npz", confidence=np.array([0.5, 0.6]), correct=np.array([1]))
    refuse("arrays of different lengths", tmp_path / "p.npz")
    pq.write_table(pa.table({"probabilities": [[0.5, 0.5], [1.0]], "label": [0, 0]}), tmp_path / "p.parquet")
    refuse("lists of different lengths", tmp_path / "p.parquet")


def test_a_folder_that_cannot_be_written_is_refused_before_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot be written"):
        audit(tmp_path / "nowhere.csv", page=tmp_path / "file" / "p.html")
