"""What to do: gains by cross-fitting, against the measures themselves, closed forms and known truths."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from calibrant import calibrators
from calibrant.audit import audit, measure_remedies
from calibrant.audit.advice import Findings, _gains, _outliers
from calibrant.audit.outliers_answered import _auroc, measure_outliers, outlier_scores
from calibrant.audit.recalibrated import recalibrate
from calibrant.audit.rejected import threshold_of
from calibrant.audit.remedies import RemedyRow
from calibrant.audit.sample import Sample
from calibrant.calibrators.choosing import cross_fitted, fold_numbers
from calibrant.calibrators.fits import FITS, softmax
from calibrant.detectors.logits import logit_detector
from calibrant.evaluation import Resampling
from calibrant.metrics import (
    auroc,
    bootstrap,
    bootstrap_difference,
    brier_score,
    expected_calibration_error,
    negative_log_likelihood,
    wrong_answers,
)

QUICK = Resampling(resamples=200)


def table(n: int = 2000, classes: int = 4, sharp: float = 2.0, tilt: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """Logits that are `sharp` times too large and miss the bias `tilt` of the first class; labels by the truth."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(n, classes))
    labels = (truth + tilt * np.eye(classes)[0] + rng.gumbel(size=truth.shape)).argmax(1)
    logits = sharp * truth
    p = softmax(logits)
    right = p.argmax(1) == labels
    return {"confidence": p.max(1), "correct": right, "probabilities": p, "target": labels, "logits": logits}


def row_of(rows: tuple[RemedyRow, ...], remedy: str, measure: str) -> RemedyRow:
    (found,) = [row for row in rows if (row.remedy, row.measure) == (remedy, measure)]
    return found


def test_the_numbers_are_those_of_the_measures_and_their_paired_intervals() -> None:
    columns = table()
    found = measure_remedies(Sample.of(**columns), resampling=QUICK)
    p, y = columns["probabilities"], columns["target"]
    for name, how in FITS.items():
        q = cross_fitted(how, columns["logits"], y, fold_numbers(len(y), 5, 0))
        for label, measure in (("log loss", negative_log_likelihood), ("Brier score", brier_score)):
            row = row_of(found.rows, name, label)
            expected = bootstrap_difference(measure, (q, y), (p, y), resamples=200, method="basic")
            assert row.before == pytest.approx(measure(p, y))
            assert row.after == pytest.approx(measure(q, y))
            assert row.difference.low == pytest.approx(expected.low)
            assert row.difference.high == pytest.approx(expected.high)
        row = row_of(found.rows, name, "ECE")
        pairs = [(part.max(1), part.argmax(1) == y) for part in (q, p)]
        own = [bootstrap(expected_calibration_error, *pair, resamples=200, bins=15) for pair in pairs]
        assert row.after == pytest.approx(expected_calibration_error(*pairs[0], bins=15))
        assert row.difference.estimate == pytest.approx(own[0].estimate - own[1].estimate)
        assert math.isnan(row.difference.low)  # no interval of such a difference is honest
        assert row.intervals is not None
        for found_one, one in zip(row.intervals, own[::-1]):
            assert (found_one.low, found_one.high) == pytest.approx((one.low, one.high))


def test_an_overconfident_system_gets_a_temperature_and_its_loss_is_split_as_the_truth_is() -> None:
    columns = table(20_000)
    found = measure_remedies(Sample.of(**columns), resampling=QUICK)
    truth = softmax(columns["logits"] / 2)
    entropy = float(-(truth * np.log(truth)).sum(1).mean())  # the loss of the best forecast
    brier = float(1 - (truth**2).sum(1).mean())
    log_loss, other = found.parts
    assert found.best == "temperature"
    assert log_loss.refinement.estimate == pytest.approx(entropy, rel=0.03)
    assert other.refinement.estimate == pytest.approx(brier, rel=0.03)
    assert log_loss.calibration.estimate + log_loss.refinement.estimate == pytest.approx(log_loss.total)
    assert log_loss.calibration.low > 0
    assert row_of(found.rows, "temperature", "ECE").helps
    assert found.sentences[0].startswith("Recalibrate by temperature scaling: on rows that it was not fitted to")
    assert "No predicted class changes." in found.sentences
    assert any(
        sentence.startswith("Recalibrate before working on the model: of the log loss of")
        for sentence in found.sentences
    )
    assert found.code[0] == "calibrant audit predictions.csv --write-calibrator calibrator.json"
    assert found.code[-1] == "calibrator.probabilities(logits)"


def test_a_class_bias_needs_vector_scaling_which_says_what_it_does_to_the_class() -> None:
    found = measure_remedies(Sample.of(**table(5000, tilt=2.0)), resampling=QUICK)
    assert found.best == "vector"
    assert row_of(found.rows, "vector", "accuracy").helps
    assert any(sentence.startswith("It changes the predicted class of ") for sentence in found.sentences)
    assert not [row for row in found.rows if (row.remedy, row.measure) == ("temperature", "accuracy")]


def test_a_threshold_that_does_not_keep_its_promise_is_not_advised() -> None:
    """Errors that hardly depend on the confidence: the few surest rows seem right, by chance."""
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.7, 1, 1000)
    correct = rng.random(1000) < 0.85
    correct[np.argsort(-confidence)[:20]] = True
    told = measure_remedies(Sample.of(confidence=confidence, correct=correct), resampling=QUICK).sentences
    (measured,) = [sentence for sentence in told if "of the surest 80 % of the inputs" in sentence]
    assert measured.startswith("A confidence threshold does not lower the error measurably")
    (promised,) = [sentence for sentence in told if "5 %" in sentence and "threshold" in sentence]
    assert promised.startswith("No threshold on the confidence reliably brings the error down to 5 %: the answers of")
    kept = measure_remedies(Sample.of(**table(5000, sharp=1.0)), resampling=QUICK).sentences
    assert any(sentence.startswith("A confidence threshold: answering only from 0.") for sentence in kept)
    assert any(sentence.startswith("A threshold for 5 % errors: answering from") for sentence in kept)


def test_a_calibrated_system_gets_no_remedy(tmp_path: Path) -> None:
    found = measure_remedies(Sample.of(**table(3000, sharp=1.0)), resampling=QUICK)
    assert found.best is None
    assert found.sentences[0] == "No recalibration lowers the log loss measurably, so none is recommended."
    assert "so the model is what to work on" in found.sentences[1]
    assert found.code == ()
    with pytest.raises(ValueError, match="was not written: no calibrator gains measurably on these 3000 rows"):
        found.write_calibrator(tmp_path / "calibrator.json")
    assert not list(tmp_path.iterdir())


def test_few_rows_say_so() -> None:
    found = measure_remedies(Sample.of(**table(89, sharp=1.2)), resampling=QUICK)
    assert "There are only 89 rows, so small gains cannot be told from chance." in found.sentences
    assert found.best is None
    none = measure_remedies(Sample.of(**table(12)))
    assert none.sentences == ("There are only 12 rows, too few to tell what a remedy would gain: 20 are needed.",)
    assert none.rows == () == none.code
    assert none.best is None


def test_a_sample_of_a_long_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrant.audit.sample.MOST_ENTRIES", 4000)
    found = measure_remedies(Sample.of(**table(3000)), resampling=QUICK)
    assert (found.size, found.total) == (1000, 3000)
    assert found.sentences[-1] == "What remedies gain was measured on 1,000 of the 3,000 rows, drawn at random."


def test_a_confidence_alone_gets_isotonic_regression_and_a_threshold(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    level = rng.uniform(0.3, 1, 5000)
    right = rng.random(5000) < level**2
    sample = Sample.of(confidence=level, correct=right)
    found = measure_remedies(sample, resampling=QUICK)
    assert {row.remedy for row in found.rows} == {"isotonic", "confidence threshold"}
    assert found.best == "isotonic"
    row = row_of(found.rows, "isotonic", "log loss")
    assert row.before == pytest.approx(float(-np.log(np.where(right, level, 1 - level)).mean()))
    assert row.after == pytest.approx(float(-np.log(np.where(right, level**2, 1 - level**2)).mean()), rel=0.03)
    assert row_of(found.rows, "isotonic", "Brier score").before == pytest.approx(float(((level - right) ** 2).mean()))
    assert "the log loss of being right falls from" in found.sentences[0]
    assert found.code[-1] == "calibrator.of_probabilities(confidence)"
    written = calibrators.load(found.write_calibrator(tmp_path / "calibrator.json"))
    assert float((written.of_probabilities(level).numpy() - level**2).__abs__().mean()) < 0.03


def brute_force(confidence: NDArray[Any], wrong: NDArray[Any], error: float) -> float:
    fine = [tau for tau in np.unique(confidence) if wrong[confidence >= tau].mean() <= error]
    return float(min(fine)) if fine else float("inf")


def test_thresholds_are_those_of_brute_force() -> None:
    rng = np.random.default_rng(0)
    for trial in range(50):
        level = rng.random(30) if trial % 2 else rng.integers(0, 5, 30) / 5
        wrong = (rng.random(30) < 0.3).astype(float)
        for error in (0.0, 0.1, 0.3):
            assert threshold_of(level, wrong, error=error) == brute_force(level, wrong, error)
        tau = threshold_of(level, wrong, coverage=0.8)
        assert (level >= tau).mean() >= 0.8
        assert (level > tau).mean() < 0.8


def test_a_threshold_lowers_the_error_as_the_truth_says() -> None:
    rng = np.random.default_rng(1)
    level = rng.random(40_000)
    found = measure_remedies(Sample.of(confidence=level, correct=rng.random(40_000) < level), resampling=QUICK)
    row = row_of(found.rows, "confidence threshold", "error at 50 % coverage")
    assert row.before == pytest.approx(0.5, abs=0.01)
    assert row.after == pytest.approx(0.25, abs=0.01)  # the mean of 1 - c over the upper half
    cover = row_of(found.rows, "confidence threshold", "coverage at 5 % error")
    assert cover.after == pytest.approx(0.1, abs=0.03)  # 1 - c is 0.05 on average over c > 0.9
    assert cover.better == "higher"
    assert not cover.helps
    same = measure_remedies(Sample.of(confidence=np.full(200, 0.7), correct=rng.random(200) < 0.7), resampling=QUICK)
    assert not [sentence for sentence in same.sentences if sentence.startswith("A confidence threshold")]


def outliers(n: int = 1500, seed: int = 5) -> dict[str, Any]:
    logits = 6 * np.random.default_rng(seed).normal(size=(n, 4)) - 3
    p = softmax(logits)
    return {"confidence": p.max(1), "probabilities": p, "logits": logits}


def test_scores_are_those_of_the_detectors_and_auroc_that_of_the_metrics() -> None:
    sample = Sample.of(**table(50), scores={"knn": np.arange(50)})
    scores, logits = outlier_scores(sample), torch.from_numpy(table(50)["logits"])
    for name in ("entropy", "gen", "energy", "max_logit"):
        expected = logit_detector(name).score(logits=logits)
        np.testing.assert_allclose(scores[name], expected.numpy(), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(scores["knn"], np.arange(50))
    own, theirs = np.round(scores["entropy"], 1), np.round(scores["entropy"][::2] + 0.1, 1)
    assert _auroc(own[:, None], theirs[:, None])[0] == pytest.approx(auroc(own, theirs))


def test_wrong_answers_are_those_of_the_metrics() -> None:
    inside, far = Sample.of(**table()), Sample.of(**outliers())
    found, _, _ = measure_outliers(inside, far, (inside.confidence, far.confidence), QUICK)
    halves = [fold_numbers(len(part), 2, 0) for part in (inside, far)]
    taken, through = np.zeros(len(inside)), np.zeros(len(far))
    for half in (0, 1):
        tau = np.sort(inside.confidence[halves[0] == half])[200]  # 800 of 1,000 are at least this
        taken[halves[0] == half] = inside.confidence[halves[0] == half] >= tau
        through[halves[1] == half] = far.confidence[halves[1] == half] >= tau
    assert taken.mean() == 0.8
    for share in (0.1, 0.5):
        expected = wrong_answers(inside.correct, taken, through, share=share)
        assert found.values[f"confidence: wrong answers, {100 * share:.0f} % outliers"] == pytest.approx(expected)
    assert found.values["confidence: outliers answered"] == pytest.approx(through.mean())
    same = found.difference("recalibrated: outliers answered", "confidence: outliers answered")
    assert (same.estimate, same.low, same.high) == (0, 0, 0)


def test_a_detector_column_makes_trust_better_than_the_confidence() -> None:
    rng = np.random.default_rng(3)
    inside = Sample.of(**table(), scores={"knn": rng.normal(size=2000), "broken": rng.normal(size=2000)})
    far = Sample.of(**outliers(), scores={"knn": 4 + rng.normal(size=1500), "broken": rng.normal(size=1500) - 3})
    found = measure_remedies(inside, {"far.csv": far}, resampling=QUICK)
    row = row_of(found.rows, "trust", "wrong answers, 50 % outliers")
    assert row.ood == "far.csv"
    assert row.helps
    assert row.after < 0.6 * row.before
    assert row_of(found.rows, "score threshold", "outliers answered").helps
    told = " ".join(found.sentences)
    assert "Where half of the inputs are outliers, and 80 % of the others are answered by a threshold on the" in told
    assert "% for far.csv (" in told
    assert "Against outliers, trust: the probability that an answer is right where outliers come in as well. " in told
    assert "trust lowers the wrong answers from " in told
    assert found.advice.first[0].startswith("Recalibrate by temperature scaling: ")
    assert [sentence.partition(":")[0] for sentence in found.advice.more] == ["Against outliers, trust"]
    assert any("Trust(share=0.1).fit(validation, outliers, ['" in line for line in found.code)
    assert "broken" not in " ".join(found.code)


def test_trust_is_recommended_only_where_no_threshold_is_as_good() -> None:
    """Outliers that the table's own confidence tells apart, but not the recalibrated one, which trust starts from."""
    rng = np.random.default_rng(4)
    inside = Sample.of(**table(), scores={"noise": rng.normal(size=2000)})
    far = Sample.of(**outliers(), scores={"noise": 0.1 + rng.normal(size=1500)})
    measured, best, read = measure_outliers(inside, far, (rng.random(2000), rng.random(1500)), QUICK)
    key = "wrong answers, 50 % outliers"
    assert measured.difference(f"trust: {key}", f"recalibrated: {key}").high < 0
    assert measured.values[f"trust: {key}"] > measured.values[f"confidence: {key}"]
    changed = recalibrate(inside, QUICK, folds=5, bins=15)
    found = Findings(inside, None, changed, (), measured, {"far": (measured, best, read)}, {"far": far})
    assert not [sentence for sentence in _gains(found) if "trust" in sentence]
    told = " ".join(_outliers(found))
    assert "by a threshold on the confidence, the share of wrong answers is " in told
    assert "Trust does not lower the wrong answers measurably: " in told


def test_several_outliers_stand_in_one_sentence_and_what_does_not_help_comes_last() -> None:
    rng = np.random.default_rng(3)
    inside = Sample.of(**table(), scores={"knn": rng.normal(size=2000)})
    far = {
        name: Sample.of(**outliers(400, seed), scores={"knn": 4 + rng.normal(size=400)})
        for name, seed in (("near", 5), ("{far}", 6))
    }
    found = measure_remedies(inside, {**far, "few": Sample.of(**outliers(10))}, resampling=QUICK)
    advice = found.advice
    assert found.sentences == (*advice.first, *advice.more, *advice.rest)
    trust = advice.more[0]
    assert "% for near (" in trust
    assert "% for {far} (" in trust
    assert "Its threshold replaces the one on the confidence." in trust
    assert "Trust was not tried on few: it needs" in " ".join(advice.rest)
    assert not [sentence for sentence in advice.rest if sentence.startswith("Trust is ")]  # it was explained above


def test_the_error_that_a_threshold_is_chosen_for_and_the_one_that_it_has_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    level = rng.random(4000)
    found = measure_remedies(Sample.of(confidence=level, correct=rng.random(4000) < level), resampling=QUICK)
    (told,) = [sentence for sentence in found.sentences if sentence.startswith("A threshold for 5 % errors: ")]
    reached = float(told.partition("it has ")[2].partition(" %")[0])
    kept = told.endswith("so 5 % is kept.")
    assert kept == (reached <= 5)
    assert kept or told.endswith("so 5 % is not quite kept: take a higher one.")


def test_outliers_with_a_confidence_alone_get_thresholds_only() -> None:
    columns, far = table(), outliers()
    inside = Sample.of(confidence=columns["confidence"], correct=columns["correct"])
    found = measure_remedies(inside, {"far": Sample.of(confidence=far["confidence"])}, resampling=QUICK)
    assert "Trust was not tried on far: it needs at least 20 outliers" in " ".join(found.sentences)
    assert not [row for row in found.rows if row.remedy == "trust"]
    few = measure_remedies(Sample.of(**columns), {"few": Sample.of(**outliers(10))}, resampling=QUICK)
    assert "Trust was not tried on few" in " ".join(few.sentences)
    mixed = measure_remedies(Sample.of(**columns), {"far": Sample.of(confidence=far["confidence"])}, resampling=QUICK)
    assert mixed.best == "temperature"
    assert mixed.rows[-6:] == found.rows[-6:]
    unlabeled = {**columns, "target": None}  # only whether each answer was right
    alone = measure_remedies(Sample.of(**unlabeled), resampling=QUICK)
    assert alone.rows == measure_remedies(inside, resampling=QUICK).rows


@pytest.mark.parametrize("tilt", [0.0, 2.0])
def test_what_is_written_is_the_calibrator_fitted_to_the_table(tilt: float, tmp_path: Path) -> None:
    columns = table(2000, tilt=tilt)
    found = measure_remedies(Sample.of(**columns), resampling=QUICK)
    written = calibrators.load(found.write_calibrator(tmp_path / "calibrator.json"))
    logits, labels = torch.from_numpy(columns["logits"]), torch.from_numpy(columns["target"])
    direct = type(written)().fit(logits, labels)
    torch.testing.assert_close(written.probabilities(logits), direct.probabilities(logits))
    torch.testing.assert_close(written(logits), direct.transform(logits))
    assert written.fingerprint() == direct.fingerprint() or found.best == "temperature"


def test_zeros_are_no_infinities() -> None:
    columns = table(500)
    p = np.eye(4)[columns["probabilities"].argmax(1)]
    sample = Sample.of(confidence=p.max(1), correct=columns["correct"], probabilities=p, target=columns["target"])
    found = recalibrate(sample, QUICK, folds=5, bins=15)
    assert all(np.isfinite(value) for value in found.measured.values.values())
    assert found.best != "none"


def test_from_the_file_to_the_calibrator(tmp_path: Path) -> None:
    columns, far = table(1000), outliers(300)
    file, other = tmp_path / "preds.npz", tmp_path / "far.npz"
    np.savez(file, probabilities=columns["probabilities"], label=columns["target"])
    np.savez(other, probabilities=far["probabilities"])
    found = audit(file, other, resampling=QUICK)
    assert found.remedies is not None
    assert found.remedies.best == "temperature"
    assert "trust" in {row.remedy for row in found.remedies.rows}
    assert len(found.remedies.to_frame()) == len(found.remedies.rows)
    assert audit(file, remedies=False, resampling=QUICK).remedies is None


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 500, 2000])
def test_calibrated_systems_are_rarely_given_a_remedy(n: int) -> None:
    tables = (table(n, sharp=1.0, seed=seed) for seed in range(100))
    given = [measure_remedies(Sample.of(**columns), resampling=QUICK).best for columns in tables]
    assert sum(best is not None for best in given) <= 5


def test_trust_in_an_audit_is_that_of_the_selector() -> None:
    """Fitted and evaluated in NumPy, because a table needs no torch."""
    torch = pytest.importorskip("torch")
    from calibrant.audit.outliers_answered import SHARES, _trust
    from calibrant.selective import Trust

    rng = np.random.default_rng(0)
    columns = rng.normal(size=(300, 3)), rng.normal([2.0, 0.0, -1.0], size=(200, 3))
    confidence = rng.random(300), rng.random(200)
    masks = np.arange(300) % 2 == 0, np.arange(200) % 2 == 0
    names, found = _trust(columns, confidence, masks, ["a", "b", "c"], 0)
    draw = np.random.default_rng(0)
    rows = [draw.permutation(np.flatnonzero(mask)) for mask in masks]
    parts = [torch.from_numpy(part[row]) for part, row in zip(columns, rows)]
    trust = Trust(SHARES[0], folds=3).fit_arrays(torch.from_numpy(confidence[0][rows[0]]), *parts, ["a", "b", "c"])
    assert names == trust.names
    read = ["abc".index(name) for name in names]
    for share in SHARES:
        for own, scores, mine in zip(confidence, columns, found[share]):
            expected = trust.with_share(share).relaxed(torch.from_numpy(own), torch.from_numpy(scores[:, read]))
            np.testing.assert_allclose(mine, expected.numpy(), rtol=1e-9)
