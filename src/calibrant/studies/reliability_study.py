"""Reliability diagrams of FNN, CFNN, BNN and CBNN (the paper's first figure of results), and of temperature scaling."""

from __future__ import annotations

from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import BASES, Figures, Study, all_seeds, choice_note, full_row, temperature, trial
from calibrant.studies.study_figures import reliability_grid
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial


def _systems(lab: Lab) -> dict[str, StudyTrial]:
    schemes = {base: trial(lab, base) for base in BASES}
    return {**schemes, **{f"{base} + temperature": temperature(one) for base, one in schemes.items()}}


def _needs(lab: Lab) -> Needs:
    return all_seeds(lab, _systems(lab).values())


def _tables(lab: Lab) -> list[StudyTable]:
    rows = [full_row(lab, name, one, **{"lambda": one.weight}) for name, one in _systems(lab).items()]
    return [StudyTable(rows, note=choice_note(lab))]


def _figures(lab: Lab) -> Figures:
    least = lab.settings.report.min_bin_count
    groups = {"figure": BASES, "figure-temperature": tuple(f"{base} + temperature" for base in BASES)}
    systems = _systems(lab)
    return {
        file: reliability_grid(
            {name: lab.record(systems[name])["reliability"] for name in names},
            {name: lab.at(systems[name])["measures"]["accuracy"]["value"] for name in names},
            least,
        )
        for file, names in groups.items()
    }


STUDY = Study(
    "reliability",
    "Reliability diagrams",
    "Reliability diagrams of FNN, CFNN, BNN and CBNN (of the first seed), with accuracy and ECE.",
    _needs,
    _tables,
    _figures,
)
