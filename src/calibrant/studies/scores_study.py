"""Detectors: every OOD score of logits and every outlier score that the records hold, whichever were named."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.metrics import Interval
from calibrant.slots import lookup, names
from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import (
    EIGHT,
    Figures,
    Study,
    all_seeds,
    choice_note,
    measured,
    plain,
    scaled,
    selective,
    temperature,
    trial,
)
from calibrant.studies.study_figures import dots
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

FIRST = ("msp", "max_logit", "energy", "entropy", "mutual_information", "density", "forest", "svm", "neighbors", "lof")
SCALED = "confidence, temperature-scaled"


def _label(name: str) -> str:
    """What the detector `name` calls itself; its name where it has no label, or is a plugin that is not loaded."""
    known = lookup("detector", name) if name in names("detector") else None
    return getattr(known, "label", "") or name


def _order(lab: Lab) -> list[str]:
    """The labels of all detectors in the records, those of the paper first."""
    known = dict.fromkeys(name for one in _selective(lab).values() for name in lab.record(one)["detectors"])
    return [_label(name) for name in [*(n for n in FIRST if n in known), *(n for n in known if n not in FIRST)]]


def _selective(lab: Lab) -> dict[str, StudyTrial]:
    """The eight schemes in the form whose records hold outlier scores."""
    return {name: selective(one) for name, one in plain(lab, EIGHT).items()}


def _needs(lab: Lab) -> Needs:
    return all_seeds(lab, [*_selective(lab).values(), *scaled(lab, EIGHT).values()])


def _values(lab: Lab, scheme: str, measure: str) -> dict[str, Interval]:
    """The `measure`, such as "auroc:SET", of every score of `scheme`."""
    one, level = _selective(lab)[scheme], lab.settings.report.confidence_level
    known = lab.record(one)["detectors"]
    found = {
        _label(name): lab.score_estimate(one, name, measure).interval(level)
        for name in known
        if one.parsed.bayesian or name != "mutual_information"  # of one member it is 0
    }
    return {**found, SCALED: measured(lab, temperature(trial(lab, scheme)), measure)}


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    sets = lab.ood_sets(_selective(lab)["FNN"])
    for scheme in _selective(lab):
        columns = {
            f"{title}, {ood}": _values(lab, scheme, f"{measure}:{ood}")
            for ood in sets
            for title, measure in (("AUROC", "auroc"), ("FPR95", "fpr95"))
        }
        for score in next(iter(columns.values())):
            yield {"system": scheme, "score": score, **{column: values[score] for column, values in columns.items()}}


def _tables(lab: Lab) -> list[StudyTable]:
    return [StudyTable(list(_rows(lab)), note=f"FPR95: share of ID flagged where 95 % of OOD is. {choice_note(lab)}")]


def _figures(lab: Lab) -> Figures:
    schemes = _selective(lab)
    sets = lab.ood_sets(schemes["FNN"])
    content = {ood: {scheme: _values(lab, scheme, f"auroc:{ood}") for scheme in schemes} for ood in sets}
    return {"figure": dots(content, [*_order(lab), SCALED], x="AUROC")}


STUDY = Study(
    "ood-scores",
    "OOD scores as detectors",
    "AUROC of every OOD score and outlier score for the eight schemes, against each OOD set; the first is of the kind"
    " of D_u, training never saw the others.",
    _needs,
    _tables,
    _figures,
)
