"""Classes and slices as parts of an audit: from every kind of table to Python, JSON and the page."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Caller, call

from calibrant.audit import audit, breakdown
from calibrant.audit.class_table import class_table
from calibrant.audit.sample import Reservoir
from calibrant.audit.slices import slices
from calibrant.evaluation import Resampling

__all__ = ["call"]

QUICK = Resampling(resamples=20)
NAMES = np.array(["cat", "dog", "owl"])


def frame(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    """Three classes; rows of the night are answered by chance, and a tenth has no camera."""
    rng = np.random.default_rng(seed)
    night = rng.random(rows) < 0.25
    p = rng.dirichlet([0.3] * 3, rows)
    label = np.array([rng.choice(3, p=row) for row in p])
    label[night] = rng.integers(0, 3, night.sum())
    made = pd.DataFrame({"label": NAMES[label], **{f"p_{name}": p[:, k] for k, name in enumerate(NAMES)}})
    made["light"] = np.where(night, "night", "day")
    made["camera"] = np.where(rng.random(rows) < 0.1, None, "A")
    made["age"] = rng.integers(18, 90, rows).astype(float)
    return made


def written(table: pd.DataFrame, kind: str, folder: Path) -> Any:
    if kind == "frame":
        return table
    if kind == "dictionary":
        return {name: values.to_numpy() for name, values in table.items()}
    path = folder / f"preds.{kind}"
    if kind == "npz":
        np.savez(path, **{n: v.to_numpy(float if v.dtype == float else str) for n, v in table.items()})
    else:
        getattr(table, "to_csv" if kind == "csv" else "to_parquet")(path, index=False)
    return path


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(expected), rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "frame", "dictionary"])
def test_classes_and_slices_are_those_of_the_functions_behind_them(kind: str, tmp_path: Path) -> None:
    table = frame()
    wanted = ["light", "age"] if kind == "npz" else ["light", "camera", "age"]
    found = audit(written(table, kind, tmp_path), slices=wanted, resampling=QUICK, remedies=False)
    p = table[[f"p_{name}" for name in NAMES]].to_numpy()
    said = NAMES[p.argmax(1)]
    expected = class_table(table.label.to_numpy(str), said, p.max(1))
    assert found.classes is not None
    assert [row.name for row in found.classes.classes] == list(NAMES)
    same(found.classes.records(), expected.records())
    same([vars(one) for one in found.classes.confusions], [vars(one) for one in expected.confusions])
    assert found.slices is not None
    columns = {name: table[name].to_numpy() for name in wanted}
    same(found.slices.records(), slices(columns, p.max(1), said == table.label).records())
    assert found.slices.slices[0].value == "night"
    assert pd.DataFrame(found.slices.records())["stands_out"].sum() >= 1
    if kind != "npz":
        assert any(one.value == "(missing)" for one in found.slices.slices)


def test_a_confidence_with_predictions_has_classes_and_one_with_correctness_has_none() -> None:
    table = frame()
    p = table[[f"p_{name}" for name in NAMES]].to_numpy()
    plain = {"label": table.label, "predicted": NAMES[p.argmax(1)], "confidence": p.max(1)}
    found = audit(plain, resampling=QUICK, remedies=False)
    assert found.classes == audit(table, resampling=QUICK, remedies=False).classes
    assert found.slices is None
    right = audit({"confidence": p.max(1), "correct": p.argmax(1) == 0}, resampling=QUICK, remedies=False)
    assert right.classes is None
    assert right.breakdown is not None
    assert right.breakdown.sentences == []


def test_numbers_of_classes_are_written_without_a_point_and_two_classes_by_their_names() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = (rng.random(200) < p).astype(float)
    found = audit(y, p, resampling=QUICK, remedies=False)
    assert found.classes is not None
    assert [row.name for row in found.classes.classes] == ["0", "1"]
    named = audit(np.where(y == 1, "spam", "ham"), p, positive="spam", resampling=QUICK, remedies=False)
    assert named.classes is not None
    assert [row.name for row in named.classes.classes] == ["ham", "spam"]


def test_of_a_long_table_a_sample_is_taken_which_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakdown, "Reservoir", lambda: Reservoir(200))
    page = tmp_path / "audit.html"
    found = audit(frame(1000), slices=["light"], resampling=QUICK, remedies=False, page=page)
    assert found.breakdown is not None
    assert (found.breakdown.size, found.breakdown.total) == (200, 1000)
    assert sum(row.count for row in found.classes.classes) == 200  # type: ignore[union-attr]
    assert "Classes and slices are of 200 of the 1,000 rows, drawn at random." in page.read_text()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("lights", "has no column 'lights'; it has .* did you mean 'light'"),
        ("vector", "must hold one value for each row"),
    ],
)
def test_columns_that_cannot_be_slices_are_refused(wanted: str, message: str, tmp_path: Path) -> None:
    table = frame(50)
    table["vector"] = [[1.0, 2.0]] * 50
    with pytest.raises(ValueError, match=message):
        audit(table, slices=[wanted], resampling=QUICK)


def test_dates_and_truth_values_are_slices_too(tmp_path: Path) -> None:
    table = frame(400)
    table["day"] = pd.to_datetime(np.where(np.arange(400) % 2, "2024-01-01", "2024-01-02"))
    table["flag"] = np.arange(400) % 4 == 0
    for source in (table, written(table, "parquet", tmp_path)):
        found = audit(source, slices=["day", "flag"], resampling=QUICK, remedies=False)
        assert found.slices is not None
        assert {one.value[:10] for one in found.slices.slices} == {"2024-01-01", "2024-01-02", "True", "False"}


def test_the_command_line_tells_them_in_terminal_and_json(
    call: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(frame(), "csv", tmp_path)
    told = call("audit", "preds.csv", "--slice", "light", "--slice", "age", "--no-remedies").out
    assert "is recognized least" in told
    assert "slices it is worse than elsewhere: light = night" in " ".join(told.split())
    found = json.loads(call("audit", "preds.csv", "--slice", "light", "--json").out)["breakdown"]
    assert [row["name"] for row in found["classes"]] == list(NAMES)
    assert found["slices"][0]["value"] == "night"
    assert found["confusions"][0]["count"] > 0
    assert (found["size"], found["total"]) == (600, 600)


def test_the_page_has_them_in_their_places_with_remedies_and_what_is_not_known(tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    rare = pd.concat([frame(), frame(5, seed=9).assign(label="cat", light="dusk")])
    found = audit(rare, slices=["light"], page=page, resampling=QUICK, ood=frame(100, seed=5).drop(columns="label"))
    text = html.unescape(page.read_text())
    order = [
        "Findings",
        "What to do",
        "What recalibration gains",
        "Does the confidence mean",
        "Numbers at this",
        ">Slices<",
    ]
    order += [">Classes<", ">Confusions<", "What is not known", "About remedies, classes and slices"]
    places = [text.index(word, text.index("<main")) for word in order]
    assert places == sorted(places)
    assert "Nothing is said of slices with fewer than 30 rows, of which there are 1." in text
    assert found.remedies is not None
    said = text.replace("<b>", "").replace("</b>", "").replace("\u00a0", " ")
    assert all(sentence in said for sentence in found.remedies.sentences)
    assert "Outliers answered, of 100" in text  # the number, beside temperature scaling and a threshold
    assert "trust" in text
    assert "result.remedies.write_calibrator" in text or found.remedies.best is None
