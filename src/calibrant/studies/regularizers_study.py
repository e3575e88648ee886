"""Every calibration regularizer in CFNN and CBNN side by side, each with its own lambda: a table the paper lacks."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.studies.jobs import Choice
from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import (
    Figures,
    Study,
    all_seeds,
    both_choices,
    first_ood,
    full_row,
    interval_note,
    measured,
    plain,
    scaled,
    temperature,
    trial,
)
from calibrant.studies.study_figures import dots
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

FAMILIES = {"CFNN": "FNN", "CBNN": "BNN"}


def _knob(lab: Lab, regularizer: str) -> str | None:
    """None for the regularizer of the settings, whose records other studies share."""
    return None if regularizer == lab.settings.calibration.regularizer else regularizer


def _choices(lab: Lab) -> list[Choice]:
    named = {name: grid for name, grid in lab.plan.regularizers.items() if _knob(lab, name)}
    return both_choices(lab) + [Choice(base, name, grid) for name, grid in named.items() for base in FAMILIES]


def _names(lab: Lab) -> list[str]:
    return list(dict.fromkeys([lab.settings.calibration.regularizer, *lab.plan.regularizers]))


def point(lab: Lab, base: str, regularizer: str) -> StudyTrial:
    """`base` with `regularizer` and the lambda that was chosen for it."""
    knob = _knob(lab, regularizer)
    weight = lab.chosen(base, knob)
    return trial(lab, base, regularizer=knob, weight=weight)


def _needs(lab: Lab) -> Needs:
    calibrated = [point(lab, base, name) for base in FAMILIES for name in _names(lab)]
    others = plain(lab, FAMILIES.values()) | scaled(lab, FAMILIES.values())
    return all_seeds(lab, [*calibrated, *others.values()])


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    for base, uncalibrated in FAMILIES.items():
        for name, one in {**plain(lab, [uncalibrated]), **scaled(lab, [uncalibrated])}.items():
            yield full_row(lab, name, one, regularizer="none")
        for name in _names(lab):
            choice = lab.choice(base, _knob(lab, name))
            grid = ", ".join(f"{fit['weight']:g}" for fit in choice["validation"][1:])
            about: dict[str, Cell] = {"regularizer": name, "lambda": choice["weight"], "grid": grid}
            yield full_row(lab, base, point(lab, base, name), **about)


def _tables(lab: Lab) -> list[StudyTable]:
    note = (
        "Lambda of each regularizer by the paper's rule on validation data, on the grid shown; 0 where every lambda"
        f" cost too much accuracy. {interval_note(lab)}"
    )
    return [StudyTable(list(_rows(lab)), note=note)]


def _figures(lab: Lab) -> Figures:
    ood = first_ood(lab, trial(lab, "FNN"))
    measures = {"Accuracy": "accuracy", "ECE": "ece", f"OOD detection, {ood}": f"detection:{ood}"}
    systems = {}
    for base, uncalibrated in FAMILIES.items():
        alone = trial(lab, uncalibrated)
        calibrated = {name: point(lab, base, name) for name in _names(lab)}
        systems[base] = {"none (FNN, BNN)": alone, "none, temperature": temperature(alone), **calibrated}
    contents = {
        title: {
            base: {name: measured(lab, one, key) for name, one in trials.items()} for base, trials in systems.items()
        }
        for title, key in measures.items()
    }
    return {"figure": dots(contents, list(systems["CFNN"]))}


STUDY = Study(
    "regularizers",
    "Calibration regularizers side by side",
    "Accuracy, ECE and OOD detection of CFNN and CBNN with every regularizer, lambda chosen for each by the same rule.",
    _needs,
    _tables,
    _figures,
    _choices,
    all_bases=True,
)
