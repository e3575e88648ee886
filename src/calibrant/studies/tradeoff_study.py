"""Accuracy against OOD detection as gamma varies, ECE as color; and the same trials as curves over gamma."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import (
    OCM,
    Figures,
    Study,
    all_seeds,
    choice_note,
    curves,
    first_ood,
    full_row,
    points,
    scaled,
    trial,
    within_plan,
)
from calibrant.studies.study_figures import trade_off
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

SCALED = ("FNN", "BNN", "FNN-OCM", "BNN-OCM")


def point(lab: Lab, scheme: str, gamma: float) -> StudyTrial:
    """`scheme` with `gamma`; at 0 the network that was never fine-tuned, and the settings' own gamma needs no knob."""
    if gamma == 0:
        return trial(lab, scheme.removesuffix("-OCM"))
    return trial(lab, scheme) if gamma == lab.settings.finetune.gamma else trial(lab, scheme, gamma=float(gamma))


def _sweeps(lab: Lab) -> dict[str, list[StudyTrial]]:
    return {scheme: [point(lab, scheme, gamma) for gamma in lab.plan.gammas] for scheme in within_plan(lab, OCM)}


def needs(lab: Lab) -> Needs:
    """The four OCM schemes with every gamma."""
    swept = [one for trials in _sweeps(lab).values() for one in trials]
    return all_seeds(lab, [*swept, *scaled(lab, SCALED).values()])


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    for scheme, trials in _sweeps(lab).items():
        for gamma, one in zip(lab.plan.gammas, trials):
            yield full_row(lab, scheme, one, **{"gamma": float(gamma), "lambda": one.weight})
    for name, one in scaled(lab, SCALED).items():
        yield full_row(lab, name, one, gamma=lab.settings.finetune.gamma if one.parsed.ocm else 0.0)


def tables(lab: Lab) -> list[StudyTable]:
    """One row a scheme and gamma."""
    return [StudyTable(list(_rows(lab)), note=f"gamma = 0 is the scheme before fine-tuning. {choice_note(lab)}")]


def figures(lab: Lab) -> Figures:
    """Accuracy against OOD detection."""
    measures = (f"detection:{first_ood(lab, trial(lab, 'FNN'))}", "accuracy", "ece")
    labels = [f"{gamma:g}" for gamma in lab.plan.gammas]
    series = [points(lab, scheme, trials, measures, labels) for scheme, trials in _sweeps(lab).items()]
    return {"figure": trade_off(series, x="OOD detection probability", y="Accuracy", color="ECE", limits=None)}


def _curves(lab: Lab) -> Figures:
    fine_tuned = [name for name in SCALED if name in OCM]
    return curves(lab, lab.plan.gammas, {**_sweeps(lab), **scaled(lab, fine_tuned)}, x="gamma")


TRADE_OFF = Study(
    "gamma-tradeoff",
    "Accuracy against OOD detection as gamma varies",
    "Test accuracy against OOD detection probability for FNN-OCM, CFNN-OCM, BNN-OCM and CBNN-OCM, test ECE as color;"
    " gamma = 0 recovers the schemes without OCM.",
    needs,
    tables,
    figures,
)
ABLATION = Study(
    "ablation-gamma",
    "The weight of confidence minimization",
    "ECE, accuracy and OOD detection probability as a function of gamma for FNN-OCM, BNN-OCM, CFNN-OCM and CBNN-OCM.",
    needs,
    tables,
    _curves,
)
