"""What people have is read, or refused with the sentence that names the column and the option."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from calibrant import Predictions, metrics
from calibrant.audit import AuditResult, audit
from calibrant.evaluation import Resampling

FAST = Resampling(resamples=20)


def binary(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Labels and P(y = 1), calibrated."""
    rng = np.random.default_rng(0)
    score = rng.beta(0.7, 0.9, n).round(6)
    return (rng.random(n) < score).astype(int), score


def three(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    p = rng.dirichlet([0.5, 0.5, 0.5], n)
    return np.array([rng.choice(3, p=row) for row in p]), p


def saved(tmp_path: Path, columns: dict[str, Any], kind: str = "csv", **options: Any) -> Path:
    frame, path = pd.DataFrame(columns), tmp_path / f"preds.{kind}"
    frame.to_parquet(path) if kind == "parquet" else frame.to_csv(path, index=False, **options)
    return path


def refuse(message: str, *arguments: Any, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        audit(*arguments, **options)
    assert "\n" not in str(caught.value)


def check_binary(result: AuditResult, labels: np.ndarray, score: np.ndarray) -> None:
    right = (score > 0.5) == (labels == 1)
    confidence = np.maximum(score, 1 - score)
    assert result.rows[0].n_id == len(labels)
    assert result.rows[0].accuracy.estimate == pytest.approx(right.mean())
    assert result.rows[0].ece.estimate == pytest.approx(metrics.expected_calibration_error(confidence, right), abs=1e-6)


def check_three(result: AuditResult, labels: np.ndarray, p: np.ndarray) -> None:
    right = p.argmax(1) == labels
    assert result.rows[0].accuracy.estimate == pytest.approx(right.mean())
    assert result.rows[0].ece.estimate == pytest.approx(metrics.expected_calibration_error(p.max(1), right), abs=1e-6)


# The probability of one of two classes


def test_a_probability_of_class_one_beside_a_prediction_is_no_confidence(tmp_path: Path) -> None:
    labels, score = binary()
    path = saved(tmp_path, {"label": labels, "pred": (score > 0.5).astype(int), "prob": score})
    words = r"the largest of 2 probabilities is at least 0.5.*--score prob --positive 1.*--classes N"
    refuse(words, path, columns={"confidence": "prob"})
    check_binary(audit(path, columns={"score": "prob"}, resampling=FAST), labels, score)
    found = audit(path, resampling=FAST)
    check_binary(found, labels, score)
    assert "Column 'prob' was read as the probability of class 1" in found.diagnosis[-1]


def test_rounding_is_no_reason_to_refuse_a_confidence_and_more_classes_are_none(tmp_path: Path) -> None:
    said = {"confidence": [0.33, 0.4, 0.9], "label": ["a", "b", "c"], "predicted": ["a", "c", "c"]}
    assert audit(saved(tmp_path, said), resampling=FAST).rows[0].accuracy.estimate == pytest.approx(2 / 3)
    said["confidence"] = [0.2, 0.4, 0.9]
    refuse("the confidence 0.2 in row 0, but the largest of 3", saved(tmp_path, said))
    assert audit(saved(tmp_path, said), classes=10, resampling=FAST).rows[0].n_id == 3


@pytest.mark.parametrize("column", ["score", "y_score", "y_prob", "prob", "proba", "Probability", "p", "prob_1", "p1"])
@pytest.mark.parametrize("truth", ["y_test", "y_true", "target"])
def test_usual_names_of_scores_and_labels_are_found(column: str, truth: str, tmp_path: Path) -> None:
    labels, score = binary(60)
    found = audit(saved(tmp_path, {truth: labels, column: score}), resampling=FAST)
    check_binary(found, labels, score)
    assert f"Column {column!r} was read as" in found.diagnosis[-1]


@pytest.mark.parametrize("values", [(0, 1), (-1, 1), (False, True), ("ham", "spam"), (1, 2)])
def test_the_positive_class_is_one_of_two_or_named(values: tuple[Any, Any], tmp_path: Path) -> None:
    labels, score = binary()
    path = saved(tmp_path, {"y": np.array(values)[labels], "score": score})
    if values in ((1, 2), ("ham", "spam")):
        refuse(f"which of .*--score score --positive {values[1]}", path)
        check_binary(audit(path, positive=values[1], resampling=FAST), labels, score)
        check_binary(audit(path, positive=values[0], resampling=FAST), 1 - labels, score)
    else:
        check_binary(audit(path, resampling=FAST), labels, score)


def test_a_third_label_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    labels, score = binary(1500)
    labels[-1] = 7
    refuse("has the labels 0, 7 beside the positive class '1'", saved(tmp_path, {"label": labels, "score": score}))


def test_what_could_be_two_things_is_refused_with_the_likely_column(tmp_path: Path) -> None:
    labels, score = binary(50)
    three_labels = np.arange(50) % 3
    both = r"if 'score' is the probability of one of two classes, give --score score.*--confidence score"
    refuse(both, saved(tmp_path, {"label": three_labels, "pred": three_labels, "score": score}))
    sure = np.maximum(score, 1 - score)  # of the predicted class: not P(y = 1)
    refuse(both, saved(tmp_path, {"label": labels, "pred": (score > 0.5).astype(int), "score": sure}))
    names = np.array(["ham", "spam"])
    mails = {"label": names[labels], "pred": names[(score > 0.5).astype(int)], "prob": score}
    refuse("--score prob", saved(tmp_path, mails))
    check_binary(audit(saved(tmp_path, mails), positive="spam", resampling=FAST), labels, score)
    refuse("values of several kinds in 'label'", pd.DataFrame({"label": [1, "a"], "confidence": [0.5, 0.6], "pred": 1}))
    refuse("if 'certainty' is the probability", saved(tmp_path, {"label": labels, "certainty": score}))


def test_another_threshold_is_noticed(tmp_path: Path) -> None:
    labels, score = binary()
    path = saved(tmp_path, {"label": labels, "pred": (score > 0.3).astype(int), "score": score})
    refuse("--score score", path)
    found = audit(path, columns={"score": "score"}, resampling=FAST)
    check_binary(found, labels, score)
    assert f"In {((score > 0.3) & (score < 0.5)).sum()} rows column 'pred'" in found.diagnosis[-1]


# All classes


def test_logits_are_read_as_columns_lists_and_arrays(tmp_path: Path) -> None:
    labels, p = three()
    z = np.log(p + 1e-9) * 1.0 + 3
    for prefix in ("logit_", "l_", "logits."):
        columns = {f"{prefix}{c}": z[:, c] for c in range(3)}
        check_three(audit(saved(tmp_path, {**columns, "label": labels}), resampling=FAST), labels, p)
    lists = saved(tmp_path, {"logits": list(z), "label": labels}, "parquet")
    check_three(audit(lists, resampling=FAST), labels, p)
    named = saved(tmp_path, {**{f"z{c}": z[:, c] for c in range(3)}, "label": labels})
    check_three(audit(named, columns={"logits": "z"}, resampling=FAST), labels, p)
    check_three(audit(named, columns={"logits": "z0,z1,z2"}, classes="012", resampling=FAST), labels, p)
    check_three(audit(labels, logits=torch.tensor(z), resampling=FAST), labels, p)
    refuse("do not sum to 1|must lie in", named, columns={"probabilities": "z"})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("classes", [[0, 1, 2], [1, 2, 3], ["cat", "dog", "owl"]])
def test_columns_called_as_the_classes(classes: list[Any], kind: str, tmp_path: Path) -> None:
    labels, p = three()
    frame = pd.DataFrame(p, columns=classes).assign(y_true=np.array(classes)[labels], size=np.arange(len(p)))
    frame.columns = frame.columns.astype(str)
    path = tmp_path / f"preds.{kind}"
    frame.to_parquet(path) if kind == "parquet" else frame.to_csv(path)
    pd.DataFrame(p[:90], columns=list(map(str, classes))).to_csv(tmp_path / "far.csv")
    found = audit(path, tmp_path / "far.csv", resampling=FAST)
    check_three(found, labels, p)
    assert found.rows[0].n_ood == 90


def test_columns_called_as_classes_that_are_no_probabilities_are_refused(tmp_path: Path) -> None:
    refuse("called as its labels.*--logits a,b", saved(tmp_path, {"a": [1.5, 2.0], "b": [0.5, -2], "y": ["a", "b"]}))


def test_other_columns_do_not_stand_in_for_a_confidence() -> None:
    labels, p = three()
    said = {"label": labels, "predicted": p.argmax(1), "confidence": p.max(1)}
    features = {str(c): np.arange(200.0) + c for c in range(4)}
    for more in (features, {"l_hip": p[:, 0], "l_knee": p[:, 1]}, {"logit": 9 * p[:, 0]}, {"score": p[:, 0]}):
        check_three(audit({**said, **more}, resampling=FAST), labels, p)
    refuse("called as its labels are .0,1,2,3.*--logits 0,1,2,3", {**features, "label": labels})


def test_arrays_of_other_things_do_not_disturb(tmp_path: Path) -> None:
    labels, p = three()
    columns = {str(c): p[:, c] for c in range(3)}
    np.savez(tmp_path / "p.npz", **columns, label=labels, edges=np.linspace(0, 1, 7), version=np.array(3))  # type: ignore[arg-type]
    check_three(audit(tmp_path / "p.npz", resampling=FAST), labels, p)
    np.savez(tmp_path / "q.npz", label=labels % 2, score=p[:, 0], pred=labels[:5] % 2)
    refuse("arrays of different lengths", tmp_path / "q.npz")


def test_names_of_classes_can_be_told() -> None:
    labels, p = three()
    names = np.array(["cat", "dog", "owl"])
    refuse("has the label 'cat', but the classes are 0, 1, 2; give their names.*--classes", names[labels], p)
    check_three(audit(names[labels], p, classes=names, resampling=FAST), labels, p)
    refuse("classes has 2 names", names[labels], p, classes=["a", "b"])
    numbered = pd.DataFrame(p).assign(label=names[labels])
    refuse("has the label 'cat', but the classes are 0, 1, 2; give their names", numbered)
    check_three(audit(numbered, classes=names, resampling=FAST), labels, p)


def test_lists_that_were_written_as_text_are_read(tmp_path: Path) -> None:
    labels, p = three()
    written = saved(tmp_path, {"label": labels, "probs": [row.tolist() for row in p], "z": [[1, 2]] * len(p)})
    check_three(audit(written, resampling=FAST), labels, p)
    printed = saved(tmp_path, {"label": labels, "logits": [np.array2string(np.log(row + 1e-9)) for row in p]})
    assert audit(printed, resampling=FAST).rows[0].accuracy.estimate == pytest.approx((p.argmax(1) == labels).mean())


# Percentages, separators, missing labels, names


def test_percentages_need_an_option_which_the_refusal_names(tmp_path: Path) -> None:
    labels, p = three()
    path = saved(tmp_path, {**{f"p_{c}": 100 * p[:, c] for c in range(3)}, "label": labels})
    refuse("it reaches from .*; if these are percentages, give --percent", path)
    check_three(audit(path, percent=True, resampling=FAST), labels, p)
    score = saved(tmp_path, {"label": labels % 2, "score": 100 * p[:, 0]})
    check_binary(audit(score, percent=True, resampling=FAST), labels % 2, p[:, 0])


@pytest.mark.parametrize(("separator", "decimal"), [(";", ","), (";", "."), ("\t", ","), ("|", ".")])
def test_separators_and_decimal_commas_are_recognized(separator: str, decimal: str, tmp_path: Path) -> None:
    labels, p = three()
    columns = {**{f"p_{c}": p[:, c] for c in range(3)}, "label": labels}
    check_three(audit(saved(tmp_path, columns, sep=separator, decimal=decimal), resampling=FAST), labels, p)


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "dict"])
@pytest.mark.parametrize("form", ["numbers", "text"])
def test_rows_without_a_label_are_left_out_and_counted(kind: str, form: str, tmp_path: Path) -> None:
    labels, p = three()
    names = np.array([0, 1, 2] if form == "numbers" else ["cat", "dog", "owl"])
    truth = pd.Series(names[labels]).where(np.arange(len(p)) % 4 != 0)
    columns = {**{f"p_{name}": p[:, c] for c, name in enumerate(names)}, "label": truth}
    source: Any = {name: np.asarray(column) for name, column in columns.items()}
    if kind == "frame":
        source = pd.DataFrame(columns)
    elif kind != "dict":
        source = saved(tmp_path, columns, kind)
    page = tmp_path / "p.html" if kind == "csv" else None
    found = audit(source, page=page, resampling=FAST)
    kept = np.arange(len(p)) % 4 != 0
    check_three(found, labels[kept], p[kept])
    assert found.rows[0].n_id == 150
    assert any("50 of 200 rows" in sentence and "left out" in sentence for sentence in found.diagnosis)
    if page is not None:
        wrong = np.flatnonzero(kept & (p.argmax(1) != labels))
        worst = wrong[p.max(1)[wrong].argmax()]  # it is shown with its place in the table
        assert f'"row":{worst},' in page.read_text()


def test_a_table_without_any_label_is_refused(tmp_path: Path) -> None:
    refuse("holds no rows with a label", saved(tmp_path, {"confidence": [0.5, 0.6], "correct": ["", ""]}))


@pytest.mark.parametrize("kind", ["csv", "frame", "parquet"])
def test_two_columns_of_one_name_are_refused(kind: str, tmp_path: Path) -> None:
    source: Any = tmp_path / f"p.{kind}"
    if kind == "csv":
        source.write_text("confidence,correct,confidence\n0.5,1,0.9\n")
    elif kind == "frame":
        source = pd.DataFrame([[0.5, 1, 0.9]], columns=["confidence", "correct", "confidence"])
    else:
        pq.write_table(pa.table([[0.5], [1], [0.9]], names=["confidence", "correct", "confidence"]), source)
    refuse("has two columns called 'confidence'", source)


def test_several_usual_names_are_said(tmp_path: Path) -> None:
    labels, p = three()
    columns = {**{f"p_{c}": p[:, c] for c in range(3)}, "target": 2 - labels, "y_true": labels}
    found = audit(saved(tmp_path, columns), resampling=FAST)
    check_three(found, labels, p)
    assert "Column 'y_true' was read as the label, not 'target'; --label names another." in found.diagnosis


# Several OOD tables, and detectors


def test_all_ood_tables_are_kept_under_names_of_their_own(tmp_path: Path) -> None:
    labels, p = three()
    path = saved(tmp_path, {**{f"p_{c}": p[:, c] for c in range(3)}, "label": labels})
    files = []
    for number, folder in enumerate(("a", "b", "c")):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / ("far.csv" if number < 2 else "id.csv"))
        pd.DataFrame(p[: 50 + number], columns=["p_0", "p_1", "p_2"]).to_csv(files[-1], index=False)
    found = audit(path, files, page=tmp_path / "p.html", resampling=FAST)
    assert {row.ood: row.n_ood for row in found.rows} == {"a/far": 50, "b/far": 51, "id (OOD)": 52}
    found = audit(labels, p, ood={"x": p[:40], "y": p[:60].tolist()}, resampling=FAST)
    assert {row.ood: row.n_ood for row in found.rows} == {"x": 40, "y": 60}
    for far in (p[:40], pd.DataFrame(p[:40]), p[:40].tolist()):
        found = audit(labels, p, ood=far, resampling=FAST)
        assert {row.ood: row.n_ood for row in found.rows} == {"ood": 40}
    found = audit(labels, p, ood=[p[:40], p[:50]], resampling=FAST)
    assert {row.ood: row.n_ood for row in found.rows} == {"ood": 40, "ood (2)": 50}
    found = audit({"label": labels, "probabilities": p}, {"probabilities": p[:45]}, resampling=FAST)
    assert {row.n_ood for row in found.rows} == {45}


def test_detectors_are_columns_that_are_compared_with_the_confidence(tmp_path: Path) -> None:
    labels, p = three()
    near, far = np.linspace(0, 1, 200), np.linspace(0.9, 2, 80)
    inside = saved(tmp_path, {**{f"p_{c}": p[:, c] for c in range(3)}, "label": labels, "knn": near})
    pd.DataFrame(p[:80], columns=["p_0", "p_1", "p_2"]).assign(knn=far).to_csv(tmp_path / "far.csv")
    found = audit(inside, tmp_path / "far.csv", detectors="knn", resampling=FAST)
    np.testing.assert_allclose(found.evaluation.id.scores["knn"], near)
    np.testing.assert_allclose(found.evaluation.ood["far"].scores["knn"], far)
    value = 100 * metrics.auroc(near, far)
    assert any(f"knn tells far apart better than the confidence: AUROC {value:.1f} %" in s for s in found.diagnosis)
    refuse("has no column 'kn'; .*did you mean 'knn'", inside, detectors=["kn"])
    refuse("column 'text' of --detector must hold", {"label": [0], "p_0": [1.0], "p_1": [0.0], "text": ["a"]},
           detectors=["text"])  # fmt: skip


# In Python


class Interchange:
    """A frame that knows the older protocol alone."""

    def __init__(self, frame: pa.Table) -> None:
        self.frame = frame

    def __dataframe__(self, *arguments: Any, **options: Any) -> Any:
        return self.frame.__dataframe__(*arguments, **options)


def test_frames_arrays_dictionaries_and_our_own_records_give_the_same() -> None:
    labels, p = three()
    columns = {**{f"p_{c}": p[:, c] for c in range(3)}, "label": labels}
    tensors = torch.tensor(p), torch.tensor(labels)
    sources: list[tuple[Any, ...]] = [
        (pd.DataFrame(columns),),
        (pd.DataFrame({**columns, "label": pd.Categorical(labels)}),),
        (pd.DataFrame({"probs": list(p), "label": labels}),),
        (pa.table(columns),),
        (pa.table(columns).to_reader(),),
        (Interchange(pa.table(columns)),),
        (columns,),
        ({"label": labels.tolist(), "softmax": p.tolist()},),
        (labels, p),
        (labels.tolist(), p.tolist()),
        (tensors[1], tensors[0]),
        (pd.Series(labels), pd.DataFrame(p)),
        (labels.astype(np.uint16), p.astype(np.longdouble)),
        (Predictions.from_probabilities(tensors[0], tensors[1]),),
        (Predictions(p.max(1), p.argmax(1), labels),),
    ]
    for source in sources:
        check_three(audit(*source, resampling=FAST), labels, p)


def test_our_own_records_keep_selection_and_scores() -> None:
    labels, p = three()
    selection, score = np.linspace(0, 1, 200), np.linspace(1, 2, 200)
    record = Predictions(p.max(1), p.argmax(1), labels, selection=selection, scores={"knn": score})
    far = Predictions(p.max(1)[:60], p.argmax(1)[:60], scores={"knn": score[:60]})
    refuse("must both have a selection", record, far)
    found = audit(record, ood={"far": replace(far, selection=selection[:60] / 2)}, resampling=FAST)
    np.testing.assert_allclose(found.evaluation.id.acceptance, selection)
    np.testing.assert_allclose(found.evaluation.ood["far"].acceptance, selection[:60] / 2)
    np.testing.assert_allclose(found.evaluation.ood["far"].scores["knn"], score[:60])


def test_two_classes_as_arrays() -> None:
    labels, score = binary()
    check_binary(audit(labels, score, resampling=FAST), labels, score)
    check_binary(audit(labels, score[:, None], resampling=FAST), labels, score)
    names = np.array(["no", "yes"])[labels]
    check_binary(audit(names, score, positive="yes", resampling=FAST), labels, score)
    check_binary(audit(labels, logits=np.log(score / (1 - score)), resampling=FAST), labels, score)


def test_arrays_that_do_not_fit_are_refused_in_one_sentence() -> None:
    labels, p = three()
    refuse("arrays of different lengths: probabilities 200, label 199", labels[:-1], p)
    refuse("give labels with probabilities", labels)
    refuse("give labels with probabilities", labels, p, logits=p)
    refuse("must be rectangular", labels, [[0.5, 0.5], [1.0]])
    refuse("must have one entry or one row", labels, p[None])
    refuse("labels must have one entry", p, p)
    refuse("columns names the columns of a table", labels, p, columns={"label": "y"})
    refuse("masked", labels, np.ma.masked_greater(p, 0.5))
    refuse("holds NaN or infinity in row 3", labels, np.where(np.arange(200)[:, None] == 3, np.nan, p))


def test_estimators_are_asked() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(3, size=300)
    X[np.arange(300), y % 2] += 2
    names = np.array(["x", "y", "z"])[y]
    model = LogisticRegression().fit(X[:200], names[:200])
    found = audit.from_estimator(model, X[200:], names[200:], ood=X[:50] * 9, resampling=FAST)
    assert found.evaluation.system == "LogisticRegression"
    assert found.rows[0].accuracy.estimate == pytest.approx(model.score(X[200:], names[200:]))
    assert (found.rows[0].ood, found.rows[0].n_ood) == ("ood", 50)
    several = audit.from_estimator(model, X[200:], names[200:], ood={"a": X[:40], "b": X[:60]}, resampling=FAST)
    assert {row.ood for row in several.rows} == {"a", "b"}
    with pytest.raises(ValueError, match="classifier has no predict_proba"):
        audit.from_estimator(object(), X, y)


def test_the_result_shows_itself_in_a_notebook_and_is_a_frame() -> None:
    labels, p = three()
    found = audit(labels, p, ood={"<far>": p[:60]}, name="<b>", resampling=FAST)
    html = found._repr_html_()
    assert "Audit of &lt;b&gt;" in html
    assert "&lt;far&gt;" in html
    assert "<b>&" not in html.replace("<b>Audit", "")
    assert "<script" not in html
    assert "http" not in html
    assert len(html) < 20_000
    frame = found.to_frame().set_index(["coverage", "measure"])
    assert frame.loc[(1.0, "ece"), "estimate"] == found.rows[0].ece.estimate
    assert frame.loc[(1.0, "auroc"), "ood"] == "<far>"
    assert not frame.index.duplicated().any()


def test_rounding_above_one_is_cut() -> None:
    found = audit([0, 1], [[np.float32(1 + 1e-7), 0], [0, 1]], resampling=FAST)
    assert found.evaluation.id.confidence.max() == 1


def test_a_score_of_two_classes_is_not_suggested_beside_three() -> None:
    frame = pd.DataFrame({"confidence": [0.9, 0.2, 0.8], "predicted": [0, 1, 2], "label": [0, 1, 2]})
    with pytest.raises(ValueError, match=r"at least 0.3333.*: if there are more classes, say how many") as refusal:
        audit(frame)
    assert "--score" not in str(refusal.value)


def test_outliers_with_more_confidence_than_id_data_are_called_so() -> None:
    labels, p = three()
    found = audit(labels, p, ood={"sure": np.tile([0.999, 0.001, 0.0], (100, 1))}, resampling=FAST)
    assert "the wrong way round" in " ".join(found.diagnosis)
    plain = audit(labels, p, ood={"unsure": np.tile([0.34, 0.33, 0.33], (100, 1))}, resampling=FAST)
    assert "the wrong way round" not in " ".join(plain.diagnosis)
