"""Names that a spreadsheet would execute: marked in CSV files, the same again when read, untouched in Parquet."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calibrant.audit import audit
from calibrant.deploy import Backbone, Predictor
from calibrant.deploy.prediction_tables import predict_table
from calibrant.evaluation import Resampling
from calibrant.files import write_csv
from calibrant.files.spreadsheet import marked, unmarked
from calibrant.posteriors.ensemble import Ensemble

NAMES = ["=HYPERLINK(1).png", "@x.png", "+1+1.png", "-2+3.png", "'=x.png", "a.png", "it's.png"]
CLASSES = ("=cmd", "'=cmd")


def cells(path: Path, column: str) -> list[str]:
    with path.open(newline="") as file:
        return [row[column] for row in csv.DictReader(file)]


@pytest.fixture
def predictor(tmp_path: Path) -> Predictor:
    lines = [f"{name},{place},0,-{place}" for place, name in enumerate(NAMES)]
    (tmp_path / "in.csv").write_text("\n".join(["name,a,b,c", *lines]) + "\n")
    backbone = Backbone("mlp-4", (3,), 2)
    return Predictor(Ensemble.of(backbone.build()), backbone=backbone, classes=CLASSES)


def test_no_cell_of_predictions_is_a_formula(predictor: Predictor, tmp_path: Path) -> None:
    out = tmp_path / "answers.csv"
    predict_table(predictor, f"csv:{tmp_path / 'in.csv'}?id=name", out, probabilities=True)
    found = cells(out, "id")
    assert not [cell for cell in found + cells(out, "predicted") if cell[0] in "=+-@\t\r\n"]
    assert sorted(map(unmarked, found)) == sorted(NAMES)
    assert set(map(unmarked, cells(out, "predicted"))) <= set(CLASSES)


def test_parquet_holds_names_as_they_are(predictor: Predictor, tmp_path: Path) -> None:
    predict_table(predictor, f"csv:{tmp_path / 'in.csv'}?id=name", tmp_path / "answers.parquet")
    assert sorted(pq.read_table(tmp_path / "answers.parquet")["id"].to_pylist()) == sorted(NAMES)


def test_every_table_is_marked(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", [{"=name": "=1+1", "value": -1.5}, {"=name": "-2", "more": None}])
    assert (tmp_path / "t.csv").read_text() == "'=name,value,more\n'=1+1,-1.5,\n-2,,\n"


def test_an_audit_of_our_own_table_compares_the_names_themselves(tmp_path: Path) -> None:
    """The truth beside our answers is written by somebody else, without marks."""
    said, truth = ["=cmd", "'=cmd"] * 30, ["=cmd"] * 60
    lines = [f"0.{50 + place % 50},{marked(one)},{other}" for place, (one, other) in enumerate(zip(said, truth))]
    (tmp_path / "p.csv").write_text("\n".join(["confidence,predicted,label", *lines]) + "\n")
    result = audit(tmp_path / "p.csv", resampling=Resampling(resamples=5), remedies=False)
    assert result.rows[0].accuracy.estimate == 0.5
