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
    first_ood,
    measured,
    selective,
    temperature,
    trial,
)
from calibrant.studies.study_figures import Line, panels
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
        "CBNN-OCM + confidence": trial(lab, "CBNN-OCM"),
    }


def _needs(lab: Lab) -> Needs:
    swept = [point(lab, scheme, eta) for scheme in PAPER for eta in lab.plan.etas]
    return all_seeds(lab, [*swept, *baselines(lab).values()], [lab.plan.eta_coverage])


def _tables(lab: Lab) -> list[StudyTable]:
    coverage = lab.plan.eta_coverage
    rows = [
        {**row(lab, scheme, point(lab, scheme, eta), coverage), "eta": float(eta)}
        for scheme in PAPER
        for eta in lab.plan.etas
    ]
    rows += [row(lab, name, one, coverage) for name, one in baselines(lab).items()]
    return [StudyTable(rows, note=choice_note(lab))]


def _figures(lab: Lab) -> Figures:
    coverage, ood = lab.plan.eta_coverage, first_ood(lab, trial(lab, "FNN"))
    content = {}
    for title, measure in (("ECE", "ece"), ("Accuracy", "accuracy"), ("OOD detection probability", f"detection:{ood}")):
        lines = [
            Line(s, lab.plan.etas, [measured(lab, point(lab, s, eta), measure, coverage) for eta in lab.plan.etas])
            for s in PAPER
        ]
        lines += [
            Line(name, (), [measured(lab, one, measure, coverage)], flat=True) for name, one in baselines(lab).items()
        ]
        content[title] = lines
    return {"figure": panels(content, x="eta", log=True)}


STUDY = Study(
    "ablation-eta",
    "The weight of the selector's regularizer",
    "ECE, accuracy and OOD detection probability as a function of eta for SFNN, SBNN-OCM and SCBNN-OCM at one coverage"
    " (40 % in the paper), beside thresholds on the confidence.",
    _needs,
    _tables,
    _figures,
)
