"""Confidence histograms of ID and OOD data for the eight schemes, gamma as in the settings."""

from __future__ import annotations

from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import EIGHT, Figures, Study, all_seeds, choice_note, full_row, plain, scaled
from calibrant.studies.study_figures import histogram_grid
from calibrant.studies.study_table import StudyTable
from calibrant.studies.study_trial import StudyTrial


def _systems(lab: Lab) -> dict[str, StudyTrial]:
    return {**plain(lab, EIGHT), **scaled(lab, EIGHT)}


def _needs(lab: Lab) -> Needs:
    return all_seeds(lab, _systems(lab).values())


def _tables(lab: Lab) -> list[StudyTable]:
    gamma = lab.settings.finetune.gamma
    rows = [
        full_row(lab, name, one, **{"lambda": one.weight, "gamma": gamma if one.parsed.ocm else None})
        for name, one in _systems(lab).items()
    ]
    return [StudyTable(rows, note=choice_note(lab))]


def _figures(lab: Lab) -> Figures:
    systems = plain(lab, EIGHT)
    figures = {}
    for number, ood in enumerate(lab.ood_sets(systems["FNN"])):
        histograms = {name: lab.record(one)["histograms"] for name, one in systems.items()}
        shown = {name: {"test": sets["test"], ood: sets[ood]} for name, sets in histograms.items()}
        detection = {
            name: lab.at(one)["measures"][f"detection:{ood}"]["value"] or float("nan") for name, one in systems.items()
        }
        figures["figure" if number == 0 else f"figure-{ood}"] = histogram_grid(shown, detection)
    return figures


STUDY = Study(
    "ood-histograms",
    "Confidence histograms of ID and OOD data",
    "Confidence histograms for ID data and the OOD test set of the kind of D_u, for the eight schemes (first seed);"
    " one further figure for each OOD set that training never saw.",
    _needs,
    _tables,
    _figures,
)
