"""Records as Parquet: what is written comes back, to the byte; JSON of 0.1.0 is read; damage is told."""

import json
import os

import numpy as np
import pandas as pd
import pytest
from experiment_labs import TINY

from calibrant.config.loading import load_settings
from calibrant.files import RunError
from calibrant.studies import open_lab
from calibrant.studies.jobs import Job, execute, open_workspace
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import parse_plan
from calibrant.studies.records import find_record, read_header, read_record, write_record
from calibrant.studies.study_trial import StudyTrial


def entry(*draws, value=0.25):
    return {"value": value, "draws": list(draws)}


def content():
    """What a study measures, in the order in which it does; the names of the sets are not in alphabetical order."""
    return {
        "temperature": None,
        "training": {"rate": 0.1, "epoch": 3.0},
        "sizes": {"test": 10, "near": 4, "far": 5},
        "histograms": {"test": [4, 6], "near": [1, 3], "far": [5, 0]},
        "at": [
            {"wanted": 1.0, "threshold": None, "measures": {"ece": entry(1, None, 3), "auroc:near": entry(4, 5, 6)}},
            {"wanted": 0.5, "threshold": 0.2, "measures": {"ece": entry(value=None), "accuracy": entry(7, 8, 10**5)}},
        ],
        "detectors": {"msp": {"auroc:near": entry(1, 2, 3)}, "energy": {"auroc:near": entry(4, 5, None)}},
    }


def backwards(value):
    """The same mapping, filled in the opposite order; rows of measures and sizes keep theirs, which counts."""
    if not isinstance(value, dict):
        return [backwards(one) for one in value] if isinstance(value, list) else value
    fixed = ("sizes", "measures", "detectors")
    return {key: value[key] if key in fixed else backwards(value[key]) for key in reversed(value)}


def test_a_record_comes_back_with_the_order_that_counts(tmp_path):
    path = tmp_path / "BNN_gamma-0.5_seed-0.parquet"
    write_record(path, content())
    back = read_record(path)
    assert back == content()
    assert json.dumps(back, sort_keys=True) == json.dumps(content(), sort_keys=True)  # 1.0 is not 1
    assert list(back["sizes"]) == ["test", "near", "far"]
    assert list(back["detectors"]) == ["msp", "energy"]
    assert [list(at["measures"]) for at in back["at"]] == [["ece", "auroc:near"], ["ece", "accuracy"]]
    header = read_header(path)
    assert header["sizes"] == content()["sizes"]
    assert [at["wanted"] for at in header["at"]] == [1.0, 0.5]


def test_a_record_without_scores_has_none(tmp_path):
    plain = {key: value for key, value in content().items() if key != "detectors"}
    write_record(tmp_path / "r.parquet", plain)
    assert read_record(tmp_path / "r.parquet") == plain


def test_the_same_record_gives_the_same_bytes(tmp_path):
    for name, record in {"a": content(), "b": content(), "c": backwards(content())}.items():
        write_record(tmp_path / f"{name}.parquet", record)
    first, *others = ((tmp_path / f"{name}.parquet").read_bytes() for name in "abc")
    assert all(other == first for other in others)
    assert list(backwards(content())["training"]) == ["epoch", "rate"]


def test_pandas_reads_the_columns_that_are_documented(tmp_path):
    write_record(tmp_path / "r.parquet", content())
    frame = pd.read_parquet(tmp_path / "r.parquet")
    assert list(frame) == ["coverage", "score", "measure", "value", "draws"]
    (row,) = frame[(frame.measure == "accuracy") & (frame.coverage == 0.5)].itertuples()
    assert row.value == 0.25
    np.testing.assert_array_equal(row.draws / 1e5, [7e-5, 8e-5, 1.0])
    assert list(frame.score.dropna()) == ["msp", "energy"]


def test_records_of_0_1_0_are_read_and_replaced(tmp_path):
    lab, trial = open_lab("embedded", results=tmp_path, overrides=TINY), StudyTrial("CFNN", weight=0.5)
    with pytest.raises(MissingRecord, match="has not been run to its end"):
        lab.record(trial)
    assert not lab.is_fresh(trial, [])
    about = {"digest": lab.digest(trial), "resamples": lab.plan.resamples}
    old = lab.path(trial).with_name(f"{trial.name}.json")
    old.parent.mkdir()
    old.write_text(json.dumps({**about, **content()}))
    assert find_record(lab.path(trial)) == old
    assert lab.record(trial) == {**about, **content()}
    assert lab.is_fresh(trial, [0.5])
    assert not lab.is_fresh(trial, [0.4])
    lab.write_record(trial, content())
    assert [path.name for path in old.parent.iterdir()] == ["CFNN_lambda-0.5_seed-0.parquet"]
    assert lab.is_fresh(trial, [0.5])
    assert lab.record(trial)["at"] == content()["at"]


def test_a_damaged_record_is_told_in_one_sentence(tmp_path):
    path = tmp_path / "r.parquet"
    write_record(path, content())
    whole = path.read_bytes()
    other = pd.DataFrame({"x": [1]}).to_parquet()
    for damaged in (b"", whole[:7], whole[: len(whole) // 2], whole[:-1], whole[1:], other):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"r\.parquet was cut short or altered .*; delete it"):
            read_record(path)
    path.unlink()
    with pytest.raises(RunError, match="cannot be read"):
        read_record(path)


def test_an_altered_page_is_not_read_as_other_numbers(tmp_path):
    path = tmp_path / "r.parquet"
    write_record(path, content())
    whole = path.read_bytes()
    footer = 8 + int.from_bytes(whole[-8:-4], "little")
    refused = 0
    for position in range(4, len(whole) - footer):
        altered = bytearray(whole)
        altered[position] ^= 0x55
        path.write_bytes(altered)
        try:
            assert read_record(path) == content(), position
        except RunError:
            refused += 1
    assert refused > (len(whole) - footer) / 2


def test_a_clock_that_was_set_back_shows_no_old_record(tmp_path):
    """Two records of one size and one time, to the nanosecond, by one process; and one by another process."""
    lab = open_lab("embedded", results=tmp_path / "results", runs=tmp_path / "runs", overrides=TINY)
    trial, shown = StudyTrial("FNN", 0), []
    for temperature in (1.5, 2.5, 3.5):
        replaced = {**content(), "temperature": temperature}
        lab.write_record(trial, replaced) if temperature < 3 else write_record(lab.path(trial), replaced)
        os.utime(lab.path(trial), ns=(10**18, 10**18))
        shown.append(lab.record(trial)["temperature"])
    assert shown == [1.5, 2.5, 3.5]


def test_a_resumed_reproduce_writes_the_same_bytes(tmp_path):
    """The second time all stages are finished, so that the scores are read from files, which have another order."""
    lab = open_lab("embedded", results=tmp_path / "results", runs=tmp_path / "runs", overrides=[*TINY, "fit.epochs=1"])
    trial, written = StudyTrial("SFNN", 0), []
    for _ in range(2):
        open_workspace.cache_clear()
        execute((lab, Job("measure", trial, trials=(trial,), coverages=((1.0, 0.5),)), False), lambda _: None)
        written.append(lab.path(trial).read_bytes())
        lab.path(trial).unlink()
    assert written[0] == written[1]


FITS = [{"weight": 0.0}, {"weight": 0.5}]
CHOICES = {
    "a list": [],
    "a number": 3,
    "no weight": {"digest": "x", "epochs": 1, "seed": 0, "validation": FITS},
    "weight as text": {"weight": "0.5", "digest": "x", "epochs": 1, "seed": 0, "validation": FITS},
    "no number": {"weight": float("nan"), "digest": "x", "epochs": 1, "seed": 0, "validation": FITS},
    "fits as a number": {"weight": 0.5, "digest": "x", "epochs": 1, "seed": 0, "validation": 3},
    "fits without weights": {"weight": 0.5, "digest": "x", "epochs": 1, "seed": 0, "validation": [{}]},
    "epochs as text": {"weight": 0.5, "digest": "x", "epochs": "x", "seed": 0, "validation": FITS},
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_file_that_is_no_choice_of_lambda_is_refused(name, tmp_path):
    lab = Lab(load_settings(), parse_plan({}), tmp_path)
    lab.choice_path("CBNN").parent.mkdir()
    lab.choice_path("CBNN").write_text(json.dumps(CHOICES[name]))
    with pytest.raises(RunError, match=r"CBNN\.json was altered "):
        lab.chosen("CBNN")
