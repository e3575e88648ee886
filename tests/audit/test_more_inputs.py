"""Tables as people write them who have not read the docs: read, or refused with the option that helps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibrant.audit import AuditResult, audit
from calibrant.audit.forecasts import rounding
from calibrant.evaluation import Resampling

FAST = Resampling(resamples=20)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def forecast(n: int = 300, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities, calibrated."""
    rng = np.random.default_rng(classes)
    p = rng.dirichlet([0.5] * classes, n)
    return np.array([rng.choice(classes, p=row) for row in p]), p


def refused(*arguments: Any, **options: Any) -> str:
    with pytest.raises(ValueError, match=r"\w") as caught:
        audit(*arguments, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check(found: AuditResult, labels: np.ndarray, p: np.ndarray) -> None:
    assert found.rows[0].n_id == len(labels)
    assert found.rows[0].accuracy.estimate == pytest.approx((p.argmax(1) == labels).mean(), abs=0.02)


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
@pytest.mark.parametrize("classes", [[False, True], [0.0, 1.0], [0.0, 1.0, 2.0], [-1.0, 1.0]])
def test_columns_may_be_called_as_classes_that_are_no_text(classes: list[Any], kind: str, tmp_path: Path) -> None:
    labels, p = forecast(classes=len(classes))
    frame: Any = pd.DataFrame(p, columns=classes).assign(label=np.array(classes)[labels], age=40.5)
    if kind != "frame":
        frame.columns = frame.columns.astype(str)
        path = tmp_path / f"p.{kind}"
        frame.to_csv(path) if kind == "csv" else frame.to_parquet(path)
        frame = path
    check(audit(frame, resampling=FAST), labels, p)


def test_columns_called_false_and_true_fit_labels_of_zero_and_one() -> None:
    labels, p = forecast(classes=2)
    for names in (["False", "True"], ["FALSE", "TRUE"]):
        check(audit(pd.DataFrame(p, columns=names).assign(y=labels, age=40.5), resampling=FAST), labels, p)


def test_columns_of_named_classes_beside_numbered_labels_are_suggested() -> None:
    labels, p = forecast()
    frame = pd.DataFrame(p, columns=NAMES).assign(target=labels, age=np.arange(300) % 70, share=0.25)
    said = refused(frame)
    assert "give --probabilities setosa,versicolor,virginica" in said
    assert "--score" not in said
    check(audit(frame, columns={"probabilities": ",".join(NAMES)}, resampling=FAST), labels, p)


@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_rows_that_are_sorted_by_their_label_are_read(kind: str, tmp_path: Path) -> None:
    labels, p = forecast(4000)
    order = np.argsort(labels, kind="stable")
    frame: Any = pd.DataFrame(p, columns=NAMES).assign(label=NAMES[labels], age=30.5).iloc[order]
    assert frame.label.iloc[:1000].nunique() == 1
    if kind == "csv":
        frame.to_csv(tmp_path / "sorted.csv")
        frame = tmp_path / "sorted.csv"
    check(audit(frame, resampling=FAST), labels, p)


def test_the_positive_class_of_sorted_labels_is_not_the_first_one() -> None:
    score = np.linspace(0, 1, 3000)
    labels = np.repeat([1, 2], 1500)
    assert "which of 1, 2?" in refused({"y": labels, "score": score})


@pytest.mark.parametrize(
    ("classes", "digits", "percent"), [(3, 3, False), (10, 3, False), (10, 1, True), (5, 2, False)]
)
def test_rounded_probabilities_are_divided_by_their_sum(classes: int, digits: int, percent: bool) -> None:
    labels, p = forecast(classes=classes)
    written = (p * (100 if percent else 1)).round(digits)
    off = np.abs(written.sum(1) / (100 if percent else 1) - 1) > 1e-6
    assert off.any()
    for source in ((labels, written), (pd.DataFrame(written).assign(label=labels),)):
        found = audit(*source, percent=percent, resampling=FAST)
        check(found, labels, p)
        np.testing.assert_allclose(found.evaluation.id.confidence, written.max(1) / written.sum(1))
        assert any(
            note.startswith(f"In {off.sum()} rows the probabilities do not sum to 1") for note in found.diagnosis
        )


def test_what_rounding_does_not_explain_is_refused() -> None:
    labels, p = forecast(classes=10)
    for values in ((0.97 * p).round(3), p.round(6) * 0.998, np.random.default_rng(0).random((300, 10)).round(2)):
        assert "do not sum to 1" in refused(labels, values)
    assert "do not sum to 1" in refused([0, 1], [[0.5, 0.4], [0.5, 0.5]])  # with one digit, anything might
    many = np.full((4, 400), 0.0024).round(3)
    assert "too few digits: in row 0 they sum to 0.8; write them with more" in refused([0, 1, 2, 3], many)
    assert rounding(p.astype(np.float16)) == 1e-3


@pytest.mark.parametrize("kind", ["frame", "csv", "decimal comma"])
@pytest.mark.parametrize("percent", [False, True])
def test_percent_signs_are_read(kind: str, percent: bool, tmp_path: Path) -> None:
    labels, p = forecast()
    said = [f"{100 * value:.1f}%" for value in p.max(1)]
    if kind == "decimal comma":
        said = [text.replace(".", ",") for text in said]
    source: Any = pd.DataFrame({"confidence": said, "label": labels, "predicted": p.argmax(1)})
    if kind != "frame":
        source.to_csv(tmp_path / "p.csv", sep="," if kind == "csv" else ";", index=False)
        source = tmp_path / "p.csv"
    found = audit(source, percent=percent, resampling=FAST)
    np.testing.assert_allclose(found.evaluation.id.confidence, (100 * p.max(1)).round(1) / 100, rtol=1e-9)


def test_a_number_in_the_midst_of_percent_signs_is_refused() -> None:
    table = {"confidence": np.array(["97.5%", "0.8"], object), "correct": [1, 0]}
    assert "holds NaN or infinity in row 1" in refused(table)


def test_decision_values_are_told_from_probabilities() -> None:
    labels, p = forecast(classes=2)
    odds = np.log(p[:, 1] / p[:, 0])
    table = {"decision_function": odds, "label": labels, "age": np.linspace(20.5, 60, 300)}
    assert "give --logits decision_function --positive CLASS" in refused(table)
    check(audit(table, columns={"logits": "decision_function"}, resampling=FAST), labels, p)
    table = {"confidence": odds, "label": labels, "predicted": (odds > 0).astype(int)}
    assert "give --logits confidence --positive CLASS" in refused(table)
    assert "give --logits score" in refused({"score": odds, "label": labels})


def test_labels_and_predictions_that_share_no_value_are_refused() -> None:
    table = {"label": ["Cat", "Dog"] * 20, "predicted": ["cat", "dog"] * 20, "confidence": [0.9] * 40}
    said = refused(table)
    assert (
        "has the labels Cat, Dog in 'label' and the predictions cat, dog in 'predicted', which share no value" in said
    )
    wrong = {"label": ["cat", "dog"] * 20, "predicted": ["dog", "cat"] * 20, "confidence": [0.9] * 40}
    assert audit(wrong, resampling=FAST).rows[0].accuracy.estimate == 0


def test_a_score_of_the_other_class_is_noticed() -> None:
    labels, p = forecast(classes=2)
    other = audit(labels, p[:, 0], resampling=FAST)
    assert any("ranks the two classes the wrong way round" in told for told in other.diagnosis)
    assert any(told.endswith("is it the probability of class 0?") for told in other.diagnosis)
    swapped = audit(labels, p[:, ::-1], resampling=FAST)
    assert any(told.endswith("in another order than 0, 1?") for told in swapped.diagnosis)
    chance = audit(labels, np.random.default_rng(0).random(300), resampling=FAST)
    for fine in (audit(labels, p, resampling=FAST), audit(labels, p[:, 1], resampling=FAST), chance):
        assert not any("wrong way round" in told for told in fine.diagnosis)


def test_a_column_that_never_prefers_the_negative_class_is_no_score_by_its_name() -> None:
    """The larger of two probabilities, saved without the prediction."""
    labels, p = forecast(classes=2)
    said = refused({"y": labels, "prob": p.max(1)})
    assert "give --score prob --positive CLASS; if it is that of the predicted class, --confidence prob" in said
    assert audit({"y": labels, "prob": p.max(1)}, columns={"score": "prob"}, resampling=FAST).rows
    assert audit({"y": labels[:19], "prob": p[:19].max(1)}, resampling=FAST).rows  # few, so it may be so
    assert audit({"y": labels, "prob": p[:, 1]}, resampling=FAST).rows


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_text_in_another_encoding_is_refused_with_what_to_do(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    rows = "confidence,predicted,label,Straße\n" + "0.9,Käuzchen,Käuzchen,1\n0.8,Katze,Käuzchen,2\n" * 20
    path.write_text(rows, encoding=encoding)
    assert "UTF-8 (in Excel, as 'CSV UTF-8')" in refused(path)
    path.write_text(rows.replace("Straße", "street"), encoding=encoding)
    assert "UTF-8 (in Excel, as 'CSV UTF-8')" in refused(path)
    path.write_text(rows, encoding="utf-8")
    assert audit(path, resampling=FAST).rows[0].accuracy.estimate == 0.5


def test_what_looks_misread_is_asked_before_anything_is_said() -> None:
    labels, p = forecast(classes=2)
    assert audit(labels, p[:, 0], resampling=FAST).diagnosis[0].endswith("is it the probability of class 0?")
    labels, p = forecast(classes=4)
    assert not any("drawn by lot" in told for told in audit(labels, p, resampling=FAST).diagnosis)
    moved = audit(labels, np.roll(p, 1, axis=1), resampling=FAST).diagnosis[0]
    assert re.match(
        r"Fewer answers are right, .* drawn by lot \(25.0 %\); are the classes in another order than 0, 1", moved
    )
    confidence, predicted = p.max(1), p.argmax(1)
    table = {"confidence": confidence, "label": labels, "predicted": (predicted + 1) % 4}
    assert audit(table, resampling=FAST).diagnosis[0].endswith("have the same name in 'label' and 'predicted'?")
    wrong = predicted != labels
    assert not any("1 stand for" in told for told in audit({"confidence": confidence, "correct": ~wrong}).diagnosis)
    errors = audit({"confidence": confidence, "correct": wrong}, resampling=FAST).diagnosis[0]
    assert errors.endswith("does 1 stand for wrong in 'correct'?")


# In Python


class Asked:
    """A classifier without `classes_`, as of a network."""

    def predict_proba(self, inputs: Any) -> Any:
        return np.asarray(inputs, float)


def test_an_estimator_needs_no_names_of_its_classes_and_takes_a_list_of_outliers() -> None:
    labels, p = forecast()
    for far in ([p[:40], p[:50]], [p[:40].tolist(), p[:50].tolist()], (pd.DataFrame(p[:40]), pd.DataFrame(p[:50]))):
        inputs = p.tolist() if isinstance(far[0], list) else p
        found = audit.from_estimator(Asked(), inputs, labels, ood=far, resampling=FAST)
        check(found, labels, p)
        assert {row.ood: row.n_ood for row in found.rows} == {"ood": 40, "ood (2)": 50}
    for one in (p[:40], p[:40].tolist()):
        inputs = p.tolist() if isinstance(one, list) else p
        found = audit.from_estimator(Asked(), inputs, labels, ood=one, resampling=FAST)
        assert {row.ood: row.n_ood for row in found.rows} == {"ood": 40}


def test_refusals_name_the_keywords_of_python() -> None:
    labels, p = forecast(classes=2)
    names = np.array(["ham", "spam"])[labels]
    assert refused(names, p[:, 1]).endswith("Name it with positive=, as in positive='spam'")
    assert refused(labels, np.log(p)).endswith("if these are logits, give logits=")
    table = {"y": names, "score": p[:, 1]}
    assert refused(table).endswith("--score score --positive spam (in Python, columns={'score': ...}, positive=...)")
    note = audit({"y": labels, "prob": p[:, 1]}, resampling=FAST).diagnosis[-1]
    assert note.endswith("--score and --positive name others (in Python, columns={'score': ...}, positive=...).")
    told = audit({"y": labels, "prob": p[:, 1]}, commands=["calibrant audit p.csv"], resampling=FAST).diagnosis[-1]
    assert told.endswith("--score and --positive name others.")
