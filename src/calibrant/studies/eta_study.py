"""ECE, accuracy and OOD detection at one coverage as eta, the weight of the selector's barrier, varies."""

from __future__ import annotations

from dataclasses import replace

from calibrant.studies.coverage_study import PAPER, row
from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import (
    Figures,
    Study,
    all_seeds,
    choice_note,
    curves,
    plain,
    selective,
    temperature,
    trial,
    within_plan,
)
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial


def point(lab: Lab, scheme: str, eta: float) -> StudyTrial:
    """The selective `scheme` with `eta`."""
    one = trial(lab, scheme.removeprefix("S"))
    return replace(selective(one), eta=None if eta == lab.settings.selector.eta else float(eta))


def baselines(lab: Lab) -> dict[str, StudyTrial]:
    """Thresholds on the confidence, which know no eta."""
    return {
        "FNN + confidence": trial(lab, "FNN"),
        "FNN + temperature + confidence": temperature(trial(lab, "FNN")),
        **{f"{name} + confidence": one for name, one in plain(lab, ["CBNN-OCM"]).items()},
    }


def _sweeps(lab: Lab) -> dict[str, list[StudyTrial]]:
    return {scheme: [point(lab, scheme, eta) for eta in lab.plan.etas] for scheme in within_plan(lab, PAPER)}


def _needs(lab: Lab) -> Needs:
    swept = [one for trials in _sweeps(lab).values() for one in trials]
    return all_seeds(lab, [*swept, *baselines(lab).values()], [lab.plan.eta_coverage])


def _tables(lab: Lab) -> list[StudyTable]:
    coverage = lab.plan.eta_coverage
    rows = [
        {**row(lab, scheme, one, coverage), "eta": float(eta)}
        for scheme, trials in _sweeps(lab).items()
        for eta, one in zip(lab.plan.etas, trials)
    ]
    rows += [row(lab, name, one, coverage) for name, one in baselines(lab).items()]
    return [StudyTable(rows, note=choice_note(lab))]


def _figures(lab: Lab) -> Figures:
    return curves(lab, lab.plan.etas, {**_sweeps(lab), **baselines(lab)}, x="eta", coverage=lab.plan.eta_coverage)


STUDY = Study(
    "ablation-eta",
    "The weight of the selector's regularizer",
    "ECE, accuracy and OOD detection probability as a function of eta for SFNN, SBNN-OCM and SCBNN-OCM at one coverage"
    " (40 % in the paper), beside thresholds on the confidence.",
    _needs,
    _tables,
    _figures,
)
