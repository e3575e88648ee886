"""Accuracy against ECE as lambda varies, OOD detection as color; and the same trials as curves over lambda."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.studies.jobs import Choice
from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import Figures, Study, all_seeds, curves, first_ood, full_row, plain, points, scaled, trial
from calibrant.studies.study_figures import trade_off
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

FAMILIES = (("FNN", "CFNN"), ("BNN", "CBNN"))
PLAIN = tuple(uncalibrated for uncalibrated, _ in FAMILIES)


def lambdas(lab: Lab) -> tuple[float, ...]:
    """The lambdas that are drawn, without 0."""
    return tuple(float(weight) for weight in lab.plan.lambdas or lab.settings.calibration.grid)


def sweep(lab: Lab, uncalibrated: str, calibrated: str) -> list[StudyTrial]:
    """The scheme without regularizer (lambda = 0), then the calibrated one for every lambda."""
    return [trial(lab, uncalibrated), *(trial(lab, calibrated, weight=weight) for weight in lambdas(lab))]


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    for uncalibrated, calibrated in FAMILIES:
        for one in sweep(lab, uncalibrated, calibrated):
            yield full_row(lab, one.scheme, one, **{"lambda": one.weight or 0.0})
        for name, one in scaled(lab, [uncalibrated]).items():
            yield full_row(lab, name, one, **{"lambda": 0.0})


def needs(lab: Lab) -> Needs:
    """All lambdas, and temperature scaling of the two schemes without regularizer."""
    swept = [one for family in FAMILIES for one in sweep(lab, *family)]
    return all_seeds(lab, [*swept, *scaled(lab, PLAIN).values()])


def tables(lab: Lab) -> list[StudyTable]:
    """One row a lambda and scheme; lambda = 0 is FNN or BNN."""
    return [StudyTable(list(_rows(lab)), note="lambda = 0 recovers FNN from CFNN and BNN from CBNN.")]


def figures(lab: Lab) -> Figures:
    """Accuracy against ECE."""
    measures = ("ece", "accuracy", f"detection:{first_ood(lab, trial(lab, 'FNN'))}")
    series = []
    for uncalibrated, calibrated in FAMILIES:
        swept = sweep(lab, uncalibrated, calibrated)
        labels = [f"{one.weight:g}" if one.weight else "" for one in swept]
        series.append(points(lab, calibrated, swept, measures, labels))
        series.append(points(lab, uncalibrated, swept[:1], measures))
    series += [points(lab, name, [one], measures) for name, one in scaled(lab, PLAIN).items()]
    return {"figure": trade_off(series, x="ECE", y="Accuracy", color="OOD detection probability", limits=None)}


def _curves(lab: Lab) -> Figures:
    systems: dict[str, StudyTrial | list[StudyTrial]] = {}
    for uncalibrated, calibrated in FAMILIES:
        systems[calibrated] = sweep(lab, uncalibrated, calibrated)[1:]
        systems |= plain(lab, [uncalibrated]) | scaled(lab, [uncalibrated])
    return curves(lab, lambdas(lab), systems, x="lambda")


def _no_choice(lab: Lab) -> list[Choice]:
    return []


PARETO = Study(
    "lambda-pareto",
    "Accuracy against ECE as lambda varies",
    "Accuracy against ECE by changing lambda for FNN, CFNN, BNN and CBNN, OOD detection probability as color.",
    needs,
    tables,
    figures,
    _no_choice,
    all_bases=True,
)
ABLATION = Study(
    "ablation-lambda",
    "The weight of the calibration regularizer",
    "ECE, accuracy and OOD detection probability as a function of lambda for FNN, BNN, CFNN and CBNN.",
    needs,
    tables,
    _curves,
    _no_choice,
    all_bases=True,
)
