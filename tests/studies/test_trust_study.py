"""The study `trust` at toy size: disjoint parts, measures by brute force, and drawing from the records alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.metrics.functional import array
from calibrant.studies import Lab, open_lab, redraw, reproduce
from calibrant.studies.jobs import open_workspace
from calibrant.studies.lab import MissingRecord
from calibrant.studies.own_claims import trust_beats_baseline, trust_beats_selector, unseen_sets
from calibrant.studies.records import read_record, write_record
from calibrant.studies.trust_measuring import UNSEEN, Stream, stream_ece, wrong
from calibrant.studies.trust_outputs import CERTIFICATE, CERTIFYING, FITTING, RULE, scored_outputs, trust_parts
from calibrant.studies.trust_study import BASELINE, DEFAULT, NAMES, STUDY, estimate, record_path, records_of
from calibrant.studies.trust_systems import by_confidence, trust_systems

SMALL = ("fit.epochs=2", "finetune.epochs=1", "finetune.examples_per_epoch=128", "posterior.members=2")
SMALL += ("backbone.name=mlp-32", "outliers.max_points=200", "selector.steps=5", "study.resamples=10")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("trust")
    made = open_lab("embedded", results=folder / "results", runs=folder / "runs", overrides=SMALL)
    reproduce(made, "trust")
    return made


def test_every_system_has_a_record_and_a_row(lab: Lab) -> None:
    for name in NAMES:
        record = read_record(record_path(lab, name))
        assert record["system"].startswith(name)
        assert {at["wanted"] for at in record["at"]} == {0.5, 0.8, 0.95, 1.0}
    table = (lab.results / "trust" / "table.md").read_text()
    assert all(f"| {name}" in table for name in NAMES)
    assert (lab.results / "trust" / "goals.md").read_text().count("| trust |") == 3


def test_it_is_drawn_from_the_records_alone(lab: Lab, tmp_path: Path) -> None:
    redraw(lab.results, "trust", tmp_path)
    for name in ("table.csv", "goals.csv", "all.csv", "shares.csv", "table.md", "figure.png"):
        assert (tmp_path / "trust" / name).read_bytes() == (lab.results / "trust" / name).read_bytes()


def test_without_outliers_trust_is_the_scaled_confidence(lab: Lab) -> None:
    ours, base = (read_record(record_path(lab, name)) for name in (DEFAULT, BASELINE))
    for one, other in zip(ours["at"], base["at"]):
        for measure in (wrong(0, ""), stream_ece(0, ""), "coverage"):
            assert one["measures"].get(measure) == other["measures"].get(measure)


def test_the_parts_are_disjoint(lab: Lab) -> None:
    assert lab.runs is not None
    workspace = open_workspace(lab.settings.model_dump_json(), 0, lab.runs, False)
    parts = trust_parts(workspace)
    for whole, names in {"validation": (FITTING, CERTIFYING), "near": (RULE, CERTIFICATE, "near")}.items():
        rows = [set(parts.rows[name][1].tolist()) for name in names]
        size = len(workspace.data.validation if whole == "validation" else workspace.data.ood["near"])
        assert sum(map(len, rows)) == len(set.union(*rows)) == size


def test_wrong_answers_and_ece_in_the_stream_by_brute_force(lab: Lab) -> None:
    assert lab.runs is not None
    workspace = open_workspace(lab.settings.model_dump_json(), 0, lab.runs, False)
    parts = trust_parts(workspace)
    before = scored_outputs(workspace, parts, "FNN")
    stream = Stream(by_confidence(before), parts.ood, 2, 15)
    threshold = np.sort(array(before[FITTING].confidence))[::-1][int(np.ceil(0.8 * len(before[FITTING]))) - 1]
    inside, outside = before["test"], before["far"]
    kept, through = array(inside.confidence) >= threshold, array(outside.confidence) >= threshold
    k, e, o = kept.mean(), (~inside.correct.numpy())[kept].mean(), through.mean()
    expected = (0.9 * k * e + 0.1 * o) / (0.9 * k + 0.1 * o)
    at = next(one for one in stream.record()["at"] if one["wanted"] == 0.8)
    assert stream.unseen == ("far",)
    assert at["measures"][wrong(0.1, UNSEEN)]["value"] == pytest.approx(expected, abs=1e-5)
    assert at["accepted"]["far"] == through.sum()
    level = np.concatenate([array(inside.confidence), array(outside.confidence)])
    right = np.concatenate([array(inside.correct), np.zeros(len(outside))])
    mass = np.concatenate([np.full(len(inside), 0.5 / len(inside)), np.full(len(outside), 0.5 / len(outside))])
    place = np.ceil(level * 15).clip(1)
    error = sum(abs(((right - level) * mass)[place == one].sum()) for one in range(1, 16))
    measured = stream.record()["at"][-1]["measures"][stream_ece(0.5, UNSEEN)]["value"]
    assert measured == pytest.approx(error, abs=1e-4)


def test_little_and_synthetic_outliers_fit_other_rules(lab: Lab) -> None:
    assert lab.runs is not None
    workspace = open_workspace(lab.settings.model_dump_json(), 0, lab.runs, False)
    before = scored_outputs(workspace, trust_parts(workspace), "FNN")
    systems = trust_systems(before, before)
    values = [systems[name].say(before["far"], 0.5).right for name in ("trust", "trust, 20 outliers")]
    assert not torch.equal(*values)
    assert torch.equal(systems["trust"].say(before["far"], 0.0).right, before["far"].confidence)


def test_several_seeds_are_averaged_and_missing_ones_are_told(lab: Lab, tmp_path: Path) -> None:
    shutil.copytree(lab.results, tmp_path / "two")
    two = replace(lab, results=tmp_path / "two", plan=lab.plan.model_copy(update={"seeds": (0, 1)}))
    with pytest.raises(MissingRecord, match="has not been run to its end"):
        STUDY.tables(two)
    for name in NAMES:
        record = read_record(record_path(lab, BASELINE if name == DEFAULT else name))
        write_record(record_path(two, name, 1), {**record, "system": f"{name} of the other seed"})
    first, base = (estimate(records_of(lab, name), 0.8, wrong(0.5, UNSEEN)) for name in (DEFAULT, BASELINE))
    both = estimate(records_of(two, DEFAULT), 0.8, wrong(0.5, UNSEEN))
    assert both.value == pytest.approx((first.value + base.value) / 2)
    assert both.bounds == (0.0, 1.0)
    rows = {row["system"]: row for row in STUDY.tables(two)[0].rows}
    counts = [read_record(record_path(two, DEFAULT, seed))["at"][1]["accepted"]["far"] for seed in (0, 1)]
    size = read_record(record_path(lab, DEFAULT))["sizes"]["far"]
    assert rows[DEFAULT][f"accepted of {size} far"] == round(sum(counts) / 2)


def test_only_what_is_drawn_is_kept_for_figures(lab: Lab) -> None:
    for name in NAMES:
        assert ("points" in read_record(record_path(lab, name))) == (name in (BASELINE, DEFAULT))


def test_the_claims_on_rules_are_judged_and_skipped_where_nothing_is_measured(lab: Lab, tmp_path: Path) -> None:
    found = list(trust_beats_baseline(lab))
    assert len(found) == 4
    pair = [estimate(records_of(lab, name), 0.8, wrong(0.5, "near")).value for name in (DEFAULT, BASELINE)]
    assert found[0].estimate.value == pytest.approx(pair[0] - pair[1])
    assert found[0].high == 0
    assert len(list(trust_beats_selector(lab))) == 4
    assert len(list(unseen_sets(lab))) == 4  # two shares, before and after OCM, of the threshold and of trust
    (tmp_path / "records").mkdir()
    nothing = replace(lab, results=tmp_path)
    assert list(unseen_sets(nothing)) == []
    with pytest.raises(MissingRecord):
        list(trust_beats_baseline(nothing))
