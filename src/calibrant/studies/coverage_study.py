"""Accuracy, ECE and OOD detection over coverage: the selective schemes against thresholds on the confidence."""

from __future__ import annotations

from dataclasses import replace

from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import (
    EIGHT,
    Figures,
    Study,
    all_seeds,
    choice_note,
    first_ood,
    measured,
    measured_columns,
    plain,
    scaled,
    selective,
    within_plan,
)
from calibrant.studies.study_figures import Line, panels
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

ELSEWHERE = ("coverage", "ood_acceptance", "system_rate_corrected", "auroc", "fpr95")
"""Measures that other columns or other tables hold."""
PAPER = ("SFNN", "SBNN-OCM", "SCBNN-OCM")


def systems(lab: Lab) -> dict[str, StudyTrial]:
    """The eight selective schemes, then the baselines: confidence thresholds and selective classification."""
    eight = plain(lab, EIGHT)
    chosen = {f"S{name}": selective(one) for name, one in eight.items()}
    other = {name[1:]: replace(chosen[name], readout="classification") for name in within_plan(lab, PAPER)}
    return {
        **chosen,
        **{f"{name} + selective classification": one for name, one in other.items()},
        **{f"{name} + confidence": one for name, one in {**eight, **scaled(lab, EIGHT)}.items()},
    }


def drawn(lab: Lab) -> dict[str, StudyTrial]:
    """The systems of the figure: the paper's three and the baselines to beat."""
    chosen = (
        *PAPER,
        "FNN + selective classification",
        "FNN + temperature + confidence",
        "CBNN-OCM + confidence",
        "CBNN-OCM + temperature + confidence",
    )
    every = systems(lab)
    return {name: every[name] for name in chosen if name in every}


def needs(lab: Lab) -> Needs:
    """All systems over all coverages."""
    return all_seeds(lab, systems(lab).values(), lab.plan.coverages)


def row(lab: Lab, label: str, one: StudyTrial, coverage: float) -> dict[str, Cell]:
    """A system at one coverage."""
    at = lab.at(one, coverage)
    found: dict[str, Cell] = {
        "system": label,
        "wanted coverage": float(coverage),
        "seeds": len(lab.seeds),
        "coverage": measured(lab, one, "coverage", coverage),
        "accepted": at["accepted"]["test"],
    }
    for ood in (None, *lab.ood_sets(one)):
        if ood is not None:
            found[f"accepted, {ood}"] = at["accepted"][ood]
        found |= measured_columns(lab, one, coverage, ood, ELSEWHERE)
    return found


def tables(lab: Lab) -> list[StudyTable]:
    """One row a system and coverage."""
    rows = [row(lab, name, one, c) for name, one in systems(lab).items() for c in sorted(lab.plan.coverages)]
    note = (
        f"{choice_note(lab)} OOD detection is between accepted ID and accepted OOD inputs, – where fewer than 30 of"
        " either are accepted (counts are of the first seed); in the whole system's rate a rejection counts as a"
        " detection. Thresholds from validation data."
    )
    return [StudyTable(rows, note=note)]


def figures(lab: Lab) -> Figures:
    """Three panels as in the paper, then how many outliers are accepted, and the whole system's rate."""
    shown = drawn(lab)
    ood = first_ood(lab, shown["SFNN"])
    titles = {
        "Accuracy": "accuracy",
        "ECE": "ece",
        "OOD detection probability": f"detection:{ood}",
        "OOD inputs accepted": f"ood_acceptance:{ood}",
        "Detection, whole system": f"system_rate:{ood}",
    }
    grid = sorted(lab.plan.coverages)
    content = {
        title: [Line(name, grid, [measured(lab, one, measure, c) for c in grid]) for name, one in shown.items()]
        for title, measure in titles.items()
    }
    return {"figure": panels(content, x="ID coverage", x_percent=True)}


STUDY = Study(
    "coverage",
    "Accuracy, ECE and OOD detection over coverage",
    "Test accuracy, ECE and OOD detection probability versus ID coverage for SFNN, SBNN-OCM and SCBNN-OCM, beside"
    " thresholds on the confidence, with and without temperature scaling, and selective classification.",
    needs,
    tables,
    figures,
)
