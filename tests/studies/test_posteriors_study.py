"""The study `posteriors`: measures by brute force, seeds of its own, and costs that are extrapolated as stated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiment_labs import TINY

from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions
from calibrant.studies import open_lab, posterior_cost
from calibrant.studies.lab import Lab, MissingRecord
from calibrant.studies.plan import load_plan
from calibrant.studies.posterior_cost import cost_path, measure_costs, read_costs
from calibrant.studies.posterior_measuring import measure_posterior
from calibrant.studies.posteriors_study import STUDY, of_seeds, posterior_trials
from calibrant.studies.study_trial import StudyTrial

CLASSES, KEPT = 4, {"wrong_at_10": 5, "wrong_at_50": 0, "ood_acceptance": 0}


def said(count: int, seed: int, *, labels: bool = True) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(count, CLASSES, generator=generator).mul(2).softmax(1)
    truth = torch.randint(CLASSES, (count,), generator=generator) if labels else None
    return Predictions.from_probabilities(rows, truth)


def test_the_measures_are_those_of_brute_force() -> None:
    test, held_out, far = said(200, 0), said(100, 1), said(150, 2, labels=False)
    evaluation = Evaluation.of("x", 0, {"validation": held_out, "test": test, "far": far})
    record = measure_posterior(evaluation, test.probabilities, (0.8,), bins=15, count=5)
    whole, part = ({k: v["value"] for k, v in at["measures"].items()} for at in record["at"])
    p, y = test.probabilities.double().numpy(), test.labels.numpy()
    assert whole["nll"] == pytest.approx(-np.log(p[np.arange(200), y]).mean(), abs=1e-5)
    assert whole["brier"] == pytest.approx(((p - np.eye(CLASSES)[y]) ** 2).sum(1).mean(), abs=1e-5)
    right = p.argmax(1) == y
    assert whole["accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    order = np.argsort(-p.max(1))
    assert whole["aurc"] == pytest.approx(np.mean(np.cumsum(~right[order]) / np.arange(1, 201)), abs=1e-5)
    inside, outside = p.max(1), far.confidence.double().numpy()
    assert whole["auroc:far"] == pytest.approx((inside[:, None] > outside).mean(), abs=1e-5)
    cut = np.sort(held_out.confidence.double().numpy())[::-1][79]
    kept, through = inside >= cut, outside >= cut
    assert part["coverage"] == pytest.approx(kept.mean(), abs=1e-6)
    assert part["ood_acceptance:far"] == pytest.approx(through.mean(), abs=1e-6)
    for share in (0.1, 0.5):
        wrong = (1 - share) * (kept & ~right).mean() + share * through.mean()
        given = (1 - share) * kept.mean() + share * through.mean()
        assert part[f"wrong_at_{share * 100:g}:far"] == pytest.approx(wrong / given, abs=1e-5)
    assert record["at"][1]["accepted"] == {"test": kept.sum(), "far": through.sum()}
    bare = measure_posterior(evaluation, test.probabilities, (), bins=15, count=5)
    assert set(bare["at"][0]["measures"]) == {"nll", "brier", "accuracy", "ece", "aurc"}
    drawn = {name for name, found in bare["at"][0]["measures"].items() if len(found["draws"]) == 5}
    assert drawn == {"accuracy", "ece"}
    assert all(len(record["at"][1]["measures"][f"{name}:far"]["draws"]) == n for name, n in KEPT.items())


def test_a_row_is_a_trial_with_a_name_and_overrides_of_its_own(tmp_path: Path) -> None:
    plain = StudyTrial("BNN-OCM", seed=1, gamma=0.2)
    row = replace(plain, posterior="ivon", changes=("posterior.family=ivon", "posterior.members=5"))
    assert row.name == "BNN-OCM_gamma-0.2_posterior-ivon_seed-1"
    assert row.overrides == ("posterior.family=ivon", "posterior.members=5", "finetune.gamma=0.2")
    assert row.parent is not None
    assert row.parent.name == "BNN_posterior-ivon_seed-1"
    lab = open_lab("embedded", results=tmp_path, overrides=TINY)
    assert lab.digest(row) != lab.digest(plain)
    assert lab.digest(replace(plain, posterior="mean_field")) == lab.digest(plain)


def tiny(folder: Path, *overrides: str) -> Lab:
    return open_lab("embedded", results=folder / "results", runs=folder / "runs", overrides=(*TINY, *overrides))


def test_seeds_may_be_fewer_where_the_regularizer_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "chosen", lambda *_: 0.5)
    lab = tiny(tmp_path, "study.seeds=[0,1,2]", "study.posteriors.calibrated_seeds=[0]")
    assert of_seeds(lab, "BNN-OCM").seeds == (0, 1, 2)
    assert of_seeds(lab, "CBNN").seeds == (0,)
    needs = STUDY.needs(lab)
    seeds = {scheme: {one.seed for one in needs if one.scheme == scheme} for scheme in ("BNN", "CBNN-OCM")}
    assert seeds == {"BNN": {0, 1, 2}, "CBNN-OCM": {0}}
    assert set(posterior_trials(lab)) == {
        *((scheme, name) for scheme in ("BNN", "BNN-OCM") for name in ("deterministic", "mean_field")),
        ("CBNN", "mean_field"),
        ("CBNN-OCM", "mean_field"),
    }
    assert all(coverages == ((0.8,) if one.readout == "temperature" else ()) for one, coverages in needs.items())


def test_a_fit_is_extrapolated_from_one_and_two_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = tiny(tmp_path, "fit.epochs=5", "data.train=256")
    with pytest.raises(MissingRecord):
        read_costs(lab)
    times = iter([9.0] * 6 + [2.0, 3.5, 0.5] * 2)  # the first round pays for what is done once
    monkeypatch.setattr(posterior_cost, "_timed", lambda work: (work(), next(times))[1])
    monkeypatch.setattr(posterior_cost, "_growth", lambda *_: 7)
    monkeypatch.setattr(posterior_cost, "IMAGES", 128)
    measure_costs(lab)
    for one in read_costs(lab).values():
        assert one["training_seconds"] == (2.0 + 4 * 1.5) * 2
        assert one["prediction_seconds"] == pytest.approx(0.5 * 1000 / 128, abs=1e-4)
        assert one["prediction_bytes"] == 7
    written = cost_path(lab).read_bytes()
    monkeypatch.setattr(posterior_cost, "_timed", None)
    measure_costs(lab)
    assert cost_path(lab).read_bytes() == written
    monkeypatch.setattr(posterior_cost, "COSTS", posterior_cost.COSTS + 1)
    with pytest.raises(TypeError):  # measured anew: the code costs something else
        measure_costs(lab)


def test_memory_is_the_growth_at_the_peak() -> None:
    before = posterior_cost._peak_since_now()
    kept = torch.ones(40_000_000)
    assert 0.9 * 160e6 < posterior_cost._peak() - before < 1.5 * 160e6 + 0 * kept[0]


def test_the_ensemble_whose_epochs_are_divided_trains_as_long_as_one_network() -> None:
    plan = load_plan("micro").posteriors
    assert {"fit.epochs=3", "finetune.examples_per_epoch=1000"} <= set(plan.systems["deep_ensemble_divided"])
    assert set(plan.calibrated) <= set(plan.systems)
