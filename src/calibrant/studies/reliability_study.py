"""Reliability diagrams of FNN, CFNN, BNN and CBNN (the paper's first figure of results), and of temperature scaling."""

from __future__ import annotations

from calibrant.studies.lab import Lab
from calibrant.studies.plan import BASES
from calibrant.studies.planning import Needs
from calibrant.studies.study import Figures, Study, all_seeds, choice_note, full_row, plain, scaled
from calibrant.studies.study_figures import reliability_grid
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial


def _systems(lab: Lab) -> dict[str, StudyTrial]:
    return {**plain(lab, BASES), **scaled(lab, BASES)}


def _needs(lab: Lab) -> Needs:
    return all_seeds(lab, _systems(lab).values())


def _tables(lab: Lab) -> list[StudyTable]:
    rows = [full_row(lab, name, one, **{"lambda": one.weight}) for name, one in _systems(lab).items()]
    return [StudyTable(rows, note=choice_note(lab))]


def _figures(lab: Lab) -> Figures:
    least = lab.settings.report.min_bin_count
    return {
        file: reliability_grid(
            {name: lab.record(one)["reliability"] for name, one in systems.items()},
            {name: lab.at(one)["measures"]["accuracy"]["value"] for name, one in systems.items()},
            least,
            width=width,
        )
        for file, systems, width in (
            ("figure", plain(lab, BASES), 2.5),
            ("figure-temperature", scaled(lab, BASES), 3.2),  # longer names
        )
    }


STUDY = Study(
    "reliability",
    "Reliability diagrams",
    "Reliability diagrams of the first seed, with accuracy and ECE; the table has means over seeds.",
    _needs,
    _tables,
    _figures,
)
