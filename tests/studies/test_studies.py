"""Every study end to end on the embedded data, drawn again from its records, and resumed after a stop."""

import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from experiment_labs import TINY

from calibrant import InputError
from calibrant.files import RunError
from calibrant.studies import STUDIES, Lab, open_lab, redraw, reproduce, write_claims
from calibrant.studies.claims import CLAIMS
from calibrant.studies.coverage_study import systems
from calibrant.studies.findings import between, value
from calibrant.studies.jobs import run_jobs
from calibrant.studies.own_claims import beats_baselines
from calibrant.studies.plan import load_plan
from calibrant.studies.planning import trial_jobs
from calibrant.studies.posteriors_study import one_network_each
from calibrant.studies.registry import pick
from calibrant.studies.reproduction import run
from calibrant.studies.selective_claims import (
    at_seventy,
    bayesian_selectors,
    best_of_all,
    calibration_against_classification,
    robust_to_eta,
    selection_improves_detection,
)
from calibrant.studies.study import trial
from calibrant.studies.study_trial import StudyTrial
from calibrant.studies.tradeoff_study import point
from calibrant.studies.training_claims import (
    acceptable_drop,
    accuracy_at_level,
    cbnn_balances,
    no_ood_help,
    ocm_beats_scores,
    ocm_costs,
    ocm_gains,
    regularizer_at_level,
    stable_gamma,
)

EIGHT = {"FNN", "CFNN", "FNN-OCM", "CFNN-OCM", "BNN", "CBNN", "BNN-OCM", "CBNN-OCM"}
SCHEMES = {
    "reliability": {"FNN", "CFNN", "BNN", "CBNN", "FNN + temperature"},
    "lambda-pareto": {"FNN", "CFNN", "BNN", "CBNN", "FNN + temperature"},
    "ablation-lambda": {"FNN", "CFNN", "BNN", "CBNN"},
    "ood-histograms": EIGHT | {"FNN + temperature"},
    "gamma-tradeoff": {"FNN-OCM", "CFNN-OCM", "BNN-OCM", "CBNN-OCM"},
    "ablation-gamma": {"FNN-OCM", "CFNN-OCM", "BNN-OCM", "CBNN-OCM"},
    "coverage": {f"S{name}" for name in EIGHT}
    | {f"{name} + confidence" for name in EIGHT}
    | {"FNN + temperature + confidence", "FNN + selective classification"},
    "ablation-eta": {"SFNN", "SBNN-OCM", "SCBNN-OCM", "FNN + temperature + confidence"},
    "regularizers": {"FNN", "CFNN", "BNN", "CBNN", "FNN + temperature"},
    "ood-scores": EIGHT,
    "posteriors": {"BNN", "BNN-OCM", "CBNN", "CBNN-OCM"},
}
SOME = ("reliability", "ood-histograms", "coverage", "ood-scores", "gamma-tradeoff", "ablation-gamma", "ablation-eta")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """All studies, run."""
    folder = tmp_path_factory.mktemp("lab")
    lab = open_lab("embedded", results=folder / "results" / "tiny", runs=folder / "runs", overrides=TINY)
    written = reproduce(lab, "all")
    assert [path.name for path in written] == list(STUDIES)
    return lab


def rows(folder, name="table"):
    with (folder / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_writes_tables_figures_and_a_page(lab, study):
    folder = lab.results / study
    tables = ("lambda", "gamma", "coverage") if study == "backbone" else ("table",)
    figures = tables if study == "backbone" else ("figure",)
    for name in tables:
        assert rows(folder, name)
        assert (folder / f"{name}.md").read_text().startswith("| ")
    for name in figures:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    page = (folder / "page.html").read_text()
    assert "data:image/png;base64," in page
    assert "init_std" in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize("study", SCHEMES)
def test_no_scheme_of_the_paper_is_left_out(lab, study):
    found = {row["system"] for row in rows(lab.results / study)}
    assert SCHEMES[study] <= found


def test_a_plan_of_some_base_schemes_leaves_out_the_others(lab, tmp_path):
    plan = lab.plan.model_copy(update={"schemes": ("FNN", "CBNN")})
    some, left_out = Lab(lab.settings, plan, lab.results, lab.runs), {"CFNN", "BNN", "CFNN-OCM", "BNN-OCM"}

    def base(system):
        return system.partition(" + ")[0].removeprefix("S")

    for name in SOME:
        shown = {row["system"] for row in STUDIES[name].tables(some)[0].rows}
        assert {each for each in SCHEMES[name] if base(each) not in left_out} <= shown
        assert not left_out & {base(each) for each in shown}
        assert STUDIES[name].figures(some)
    new = Lab(lab.settings, plan, tmp_path, tmp_path)
    jobs = trial_jobs(new, {StudyTrial(scheme): () for scheme in ("CBNN", "FNN-OCM")})
    assert [job.trial.scheme for job in jobs] == ["FNN", "FNN-OCM", "FNN-OCM", "CBNN", "CBNN"]
    with pytest.raises(InputError, match="study lambda-pareto needs CFNN, too"):
        pick(some, "lambda-pareto")
    with pytest.raises(InputError, match="FNN must be among them"):
        load_plan("embedded", ["study.schemes=[BNN]"])


def test_grids_are_complete(lab):
    assert {row["lambda"] for row in rows(lab.results / "lambda-pareto") if row["system"] == "CBNN"} == {"0.2", "1"}
    gammas = {row["gamma"] for row in rows(lab.results / "gamma-tradeoff") if row["system"] == "BNN-OCM"}
    assert gammas == {"0", "0.5", "1"}
    wanted = {row["wanted coverage"] for row in rows(lab.results / "coverage") if row["system"] == "SFNN"}
    assert wanted == {"0.1", "0.4", "0.5", "0.7", "1"}
    etas = {row["eta"] for row in rows(lab.results / "ablation-eta") if row["system"] == "SFNN"}
    assert etas == {"0.01", "0.1"}
    names = {row["regularizer"] for row in rows(lab.results / "regularizers") if row["system"] == "CFNN"}
    assert names == {"weighted_mmce", "esd", "dece", "focal", "mmce", "avuc", "soft_avuc"}
    scores = {row["score"] for row in rows(lab.results / "ood-scores") if row["system"] == "BNN"}
    assert len(scores) == 10
    assert "mutual information" not in {r["score"] for r in rows(lab.results / "ood-scores") if r["system"] == "FNN"}


def test_few_accepted_leave_detection_undefined_but_not_the_whole_system(lab):
    for row in rows(lab.results / "coverage"):
        few = min(int(row["accepted"]), int(row["accepted, near"])) < 30
        assert (row["OOD detection, near"] == "") == few
        assert row["whole system, near"]
        if row["wanted coverage"] == "1":
            assert float(row["coverage"]) == 1


def test_the_cost_table_names_the_rows_that_do_not_reproduce(lab):
    verdicts = {row["model"]: row["reproduces"] for row in rows(lab.results / "cost")}
    assert verdicts["FNN"] == verdicts["CFNN-OCM"] == "yes"
    assert verdicts["BNN"] == verdicts["CBNN-OCM"] == verdicts["Selector"] == "no: FLOPs"


def test_tables_regenerate_from_the_records_alone(lab, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(lab.results, copy)
    alone, compared = Lab.load(copy), 0
    for study in STUDIES.values():
        for table in study.tables(study.within(alone)):
            table.write(tmp_path / study.name)
            for kind in ("csv", "md"):
                again = (tmp_path / study.name / f"{table.name}.{kind}").read_bytes()
                assert again == (lab.results / study.name / f"{table.name}.{kind}").read_bytes()
                compared += 1
    assert compared == 2 * (len(STUDIES) + 9)  # cost has two tables, backbone three, trust and posteriors four


def test_everything_else_regenerates_too(lab, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(lab.results, copy)
    (folder,) = redraw(copy, "reliability", tmp_path / "again")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in (lab.results / "reliability").iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (lab.results / "reliability" / name).read_bytes()


def test_nothing_is_done_twice(lab, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a finished job was done again")

    monkeypatch.setattr("calibrant.studies.jobs.execute", refuse)
    study = STUDIES["backbone"]
    run(lab, [one for one in STUDIES.values() if one is not study])
    run(study.within(lab), [study])


def test_studies_share_their_fits(lab):
    fits = [path for path in (lab.runs / "stages").iterdir() if path.name.startswith("fit-FNN-")]
    assert len(fits) == 2  # the study's own network, and that of the backbone study


def test_lambda_is_chosen_on_validation_data_and_recorded(lab):
    choice = json.loads(lab.choice_path("CFNN").read_text())
    base, *tried = choice["validation"]
    allowed = [one for one in tried if base["accuracy"] - one["accuracy"] <= choice["max_accuracy_drop"] + 1e-9]
    best = min(allowed, key=lambda one: one["ece"])["weight"] if allowed else 0
    assert choice["weight"] == best
    assert lab.chosen("CFNN") == best


def test_a_lambda_of_zero_is_the_scheme_without_the_regularizer(lab, tmp_path):
    other = replace(lab, results=shutil.copytree(lab.results, tmp_path / "lab"))
    path = other.choice_path("CBNN")
    path.write_text(json.dumps({**json.loads(path.read_text()), "weight": 0.0}))
    assert trial(other, "CBNN-OCM", gamma=1.0) == trial(other, "BNN-OCM", gamma=1.0)
    assert systems(other)["SCBNN-OCM"] == systems(other)["SBNN-OCM"]
    assert trial(other, "CFNN") == trial(lab, "CFNN")
    assert trial(other, "CFNN").weight > 0


def test_claims_are_filled_in(lab, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(lab.results.parent, results)
    (results / "causes.yaml").write_text("ocm: Two epochs teach it little.\n")
    (results / "times.yaml").write_text(f"{lab.results.name}: It took 12 s on one core.\n")
    text = write_claims(results).read_text()
    assert text.count("It took 12 s on one core.") == 1
    for claim in CLAIMS:
        assert f"### {claim.text}" in text
    assert text.count("Not measured yet.") == sum(claim.where == "on CIFAR-10" for claim in CLAIMS)
    assert "Two epochs teach it little." in text
    assert f" -o fit.epochs={lab.settings.fit.epochs}" in text
    assert write_claims(tmp_path / "results" / "tiny" / "records").read_text().count("Not measured yet.") == len(CLAIMS)
    with pytest.raises(ValueError, match="is not a folder"):
        write_claims(tmp_path / "nowhere")
    (results / "causes.yaml").write_text("ocn: x\n")
    with pytest.raises(ValueError, match="'ocn' that does not exist"):
        write_claims(results)
    (results / "causes.yaml").unlink()
    (results / "times.yaml").write_text("tyni: x\n")
    with pytest.raises(ValueError, match="a run 'tyni' that does not exist"):
        write_claims(results)


def test_a_run_of_some_schemes_is_judged_by_those(lab, tmp_path):
    results = tmp_path / "results"
    shutil.copytree(lab.results, results / "tiny")
    some = replace(lab, results=results / "tiny", plan=lab.plan.model_copy(update={"schemes": ("FNN", "CBNN")}))
    some.save()
    text = write_claims(results).read_text()
    head = text.partition("## tiny\n")[2].partition("\n## ")[0]
    assert "| FNN-OCM |" in head
    assert "| SCBNN-OCM, half accepted |" in head
    assert "BNN |" not in head.replace("CBNN |", "")
    assert "Of the base schemes, `tiny` has FNN and CBNN alone" in text.partition("\n| claim |")[0]
    assert [finding.what for finding in ocm_costs(some)] == ["ECE, FNN-OCM less FNN", "ECE, CBNN-OCM less CBNN"]
    assert not list(no_ood_help(some))


def test_accepted_outliers_stand_beside_detection_among_the_accepted(lab):
    counted = [*bayesian_selectors(lab), *robust_to_eta(lab), *at_seventy(lab)]
    counted += [*best_of_all(lab), *selection_improves_detection(lab)]
    assert {bool(one.outliers) for one in beats_baselines(lab) if "whole system" in one.what} == {True}
    assert {bool(one.outliers) for one in counted if "OOD detection" in one.what} == {True}
    assert not any(one.outliers for one in counted if "OOD detection" not in one.what)
    size = lab.record(trial(lab, "FNN"))["sizes"]["near"]
    assert next(one.outliers for one in counted if one.outliers).endswith(f" of {size:,} at 40 %")
    selector = lab.at(replace(trial(lab, "FNN"), scheme="SFNN"), 0.4)
    assert f"SFNN {selector['accepted']['near']:,} of" in next(one.outliers for one in counted if one.outliers)


def test_the_level_at_which_schemes_are_compared_is_one_that_both_reach(lab):
    for finding in (*accuracy_at_level(lab), *regularizer_at_level(lab)):
        schemes = finding.what.partition(", ")[2].split(" less ")
        reached = [[value(lab, point(lab, s, gamma), "detection").value for gamma in lab.plan.gammas] for s in schemes]
        if math.isnan(finding.estimate.value):
            assert max(map(min, reached)) > min(map(max, reached))
            continue
        level = float(finding.what.partition("detection ")[2].partition(" %")[0]) / 100
        for found in reached:
            assert min(found) - 0.001 <= level <= max(found) + 0.001


def test_one_gamma_says_nothing_about_stability(lab):
    one = replace(lab, plan=lab.plan.model_copy(update={"gammas": (0.0, 0.5)}))
    assert list(stable_gamma(lab))
    assert not list(stable_gamma(one))


def test_an_unknown_study_is_refused_with_the_nearest(lab):
    with pytest.raises(ValueError, match="did you mean coverage"):
        reproduce(lab, "coverages")
    with pytest.raises(ValueError, match=r"no study\.yaml"):
        redraw(lab.results / "records")
    with pytest.raises(ValueError, match="workers"):
        run_jobs(lab, [], workers=0)


def test_a_killed_run_goes_on_to_the_same_records(lab, tmp_path):
    results, runs = tmp_path / "results", tmp_path / "runs"
    overrides = [part for one in (*TINY, "engine.checkpoint_steps=1", "fit.epochs=20") for part in ("-o", one)]
    command = [
        sys.executable,
        "-m",
        "calibrant",
        "reproduce",
        "reliability",
        "--out",
        str(results),
        "--runs",
        str(runs),
    ]
    process = subprocess.Popen(
        [*command, *overrides], stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if list(runs.glob("stages/fit-CFNN-*/*checkpoint*")):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not list(results.glob("records/CFNN*"))
    changed = (*TINY, "fit.epochs=20")
    reproduce(open_lab("embedded", results=results, runs=runs, overrides=changed), "reliability")
    reference = open_lab("embedded", results=tmp_path / "other", runs=tmp_path / "elsewhere", overrides=changed)
    reproduce(reference, "reliability")
    files = sorted(path.name for path in (results / "records").iterdir())
    assert files == sorted(path.name for path in (reference.results / "records").iterdir())
    for name in files:
        assert (results / "records" / name).read_bytes() == (reference.results / "records" / name).read_bytes()


def test_a_failing_job_keeps_back_only_what_needs_it(lab, tmp_path, monkeypatch):
    from calibrant.studies import jobs

    execute = jobs.execute

    def flaky(argument, send):
        _, job, _ = argument
        if job.kind == "train" and job.trial.scheme == "BNN":
            raise RuntimeError("the disk is full")
        execute(argument, send)

    monkeypatch.setattr("calibrant.studies.jobs.execute", flaky)
    broken = open_lab("embedded", results=tmp_path / "results", runs=lab.runs, overrides=TINY)
    with pytest.raises(RunError, match="2 of 8 jobs failed: train BNN_seed-0: RuntimeError: the disk is full"):
        reproduce(broken, "reliability")
    assert {path.name.split("_")[0] for path in (tmp_path / "results" / "records").iterdir()} == {"FNN", "CFNN", "CBNN"}
    monkeypatch.undo()
    reproduce(broken, "reliability")


def test_worker_processes_make_the_same_records(lab, tmp_path):
    other = open_lab("embedded", results=tmp_path / "results", runs=lab.runs, overrides=TINY)
    needs = {StudyTrial("FNN"): (), StudyTrial("BNN"): ()}
    run_jobs(other, trial_jobs(other, needs), workers=2)
    for one in needs:
        assert other.at(one) == lab.at(one)


def test_ocm_is_judged_by_what_it_gains_and_by_what_it_costs(lab):
    for base, finding in zip(("FNN", "CFNN", "BNN", "CBNN"), ocm_gains(lab), strict=True):
        tuned, plain = (lab.at(trial(lab, name))["measures"]["detection:near"] for name in (f"{base}-OCM", base))
        assert finding.estimate.value == pytest.approx(tuned["value"] - plain["value"])
        assert (finding.low, finding.high) == (0, math.inf)
    accuracy, more_accuracy, ece, more_ece = cbnn_balances(lab)
    cost = {
        (scheme, measure): value(lab, trial(lab, f"{scheme}-OCM"), measure).value
        - value(lab, trial(lab, scheme), measure).value
        for scheme in ("CFNN", "CBNN")
        for measure in ("accuracy", "ece")
    }
    assert accuracy.estimate.value == pytest.approx(-cost["CFNN", "accuracy"])
    assert ece.estimate.value == pytest.approx(cost["CFNN", "ece"])
    assert more_accuracy.estimate.value == pytest.approx(cost["CBNN", "accuracy"] - cost["CFNN", "accuracy"])
    assert more_ece.estimate.value == pytest.approx(cost["CFNN", "ece"] - cost["CBNN", "ece"])


def test_ocm_is_compared_with_the_scores_of_the_network_before_it(lab):
    tuned = lab.at(trial(lab, "FNN-OCM"))["measures"]["auroc:near"]["value"]
    detectors = lab.record(replace(trial(lab, "FNN"), scheme="SFNN"))["detectors"]
    for name, finding in zip(("max_logit", "energy"), ocm_beats_scores(lab), strict=True):
        assert finding.estimate.value == pytest.approx(tuned - detectors[name]["auroc:near"]["value"])
        assert np.isfinite(finding.estimate.draws).all()
        assert finding.low == 0


def test_the_chosen_lambda_is_judged_by_the_rule_on_test_data(lab):
    found = list(acceptable_drop(lab))
    chosen = [pair for pair in (("FNN", "CFNN"), ("BNN", "CBNN")) if lab.chosen(pair[1])]
    assert len(found) == 2 * len(chosen)
    for (plain, calibrated), ece, drop in zip(chosen, found[::2], found[1::2], strict=True):
        assert ece.estimate.value == pytest.approx(between(lab, calibrated, plain, "ece").value)
        assert drop.estimate.value == pytest.approx(-between(lab, calibrated, plain, "accuracy").value)
        assert (ece.high, drop.high) == (0, 0.015)


def test_the_best_scheme_is_compared_with_the_benchmarks_of_the_paper(lab):
    found = list(best_of_all(lab))
    assert [finding.what.partition(" less ")[2] for finding in found] == [
        n for n in ("CFNN", "FNN-OCM", "SFNN") for _ in range(3)
    ]
    ours = lab.at(replace(trial(lab, "CBNN-OCM"), scheme="SCBNN-OCM"), 0.5)["measures"]
    other = lab.at(trial(lab, "FNN-OCM"))["measures"]
    assert found[3].estimate.value == pytest.approx(ours["accuracy"]["value"] - other["accuracy"]["value"])
    assert [(finding.low, finding.high) for finding in found[3:5]] == [(0, math.inf), (-math.inf, 0)]


def test_selective_calibration_is_compared_with_selective_classification(lab):
    for name, finding in zip(("SFNN", "SBNN-OCM", "SCBNN-OCM"), calibration_against_classification(lab), strict=True):
        one = replace(trial(lab, name[1:]), scheme=name)
        ours, other = (
            lab.at(each, 0.5)["measures"]["ece"]["value"] for each in (one, replace(one, readout="classification"))
        )
        assert finding.estimate.value == pytest.approx(ours - other)
        assert (finding.low, finding.high) == (-math.inf, 0)


def test_differences_of_posteriors_stay_within_what_is_possible(lab):
    found = list(one_network_each(lab))
    assert len(found) == 2
    assert {finding.estimate.bounds for finding in found} == {(-1.0, 1.0)}


def test_the_page_of_claims_has_every_verdict_at_a_glance(lab, tmp_path):
    shutil.copytree(lab.results, tmp_path / "results" / "tiny")
    text = write_claims(tmp_path / "results").read_text()
    glance = text.partition("## Verdicts at a glance")[2].partition("\n## ")[0]
    words = {"yes": "holds", "no": "does not hold", "?": "cannot be told at this scale"}
    for claim in CLAIMS:
        section = text.partition(f"### {claim.text}\n")[2].partition("\n### ")[0]
        (cell,) = (line.split("|")[2].strip() for line in glance.splitlines() if line.startswith(f"| {claim.text} |"))
        assert (f"**{words[cell]}**." in section) if cell else ("Not measured yet." in section)
        assert claim.said in section
    assert text.count("<details>") == text.count("</details>")
