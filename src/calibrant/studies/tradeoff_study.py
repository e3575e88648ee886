"""Accuracy against OOD detection as gamma varies, ECE as colour; and the same trials as curves over gamma."""

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
    first_ood,
    full_row,
    measured,
    temperature,
    trial,
)
from calibrant.studies.study_figures import Line, Points, panels, trade_off
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial


def point(lab: Lab, scheme: str, gamma: float) -> StudyTrial:
    """`scheme` with `gamma`; at 0 the network that was never fine-tuned, and the settings' own gamma needs no knob."""
    if gamma == 0:
        return trial(lab, scheme.removesuffix("-OCM"))
    return trial(lab, scheme) if gamma == lab.settings.finetune.gamma else trial(lab, scheme, gamma=float(gamma))


def _temperatures(lab: Lab) -> dict[str, StudyTrial]:
    names = ("FNN", "BNN", "FNN-OCM", "BNN-OCM")
    return {f"{name} + temperature": temperature(trial(lab, name)) for name in names}


def needs(lab: Lab) -> Needs:
    """The four OCM schemes with every gamma."""
    swept = [point(lab, scheme, gamma) for scheme in OCM for gamma in lab.plan.gammas]
    return all_seeds(lab, [*swept, *_temperatures(lab).values()])


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    for scheme in OCM:
        for gamma in lab.plan.gammas:
            one = point(lab, scheme, gamma)
            yield full_row(lab, scheme, one, **{"gamma": float(gamma), "lambda": one.weight})
    for name, one in _temperatures(lab).items():
        yield full_row(lab, name, one, gamma=lab.settings.finetune.gamma if one.parsed.ocm else 0.0)


def tables(lab: Lab) -> list[StudyTable]:
    """One row a scheme and gamma."""
    return [StudyTable(list(_rows(lab)), note=f"gamma = 0 is the scheme before fine-tuning. {choice_note(lab)}")]


def figures(lab: Lab) -> Figures:
    """Accuracy against OOD detection."""
    series = []
    for scheme in OCM:
        swept = [point(lab, scheme, gamma) for gamma in lab.plan.gammas]
        ood = first_ood(lab, swept[0])
        x, y, color = (
            [lab.estimate(one, measure).value for one in swept] for measure in (f"detection:{ood}", "accuracy", "ece")
        )
        series.append(Points(scheme, x, y, color, [f"{gamma:g}" for gamma in lab.plan.gammas]))
    return {"figure": trade_off(series, x="OOD detection probability", y="Accuracy", color="ECE", limits=None)}


def curves(lab: Lab) -> Figures:
    """ECE, accuracy and OOD detection over gamma."""
    ood = first_ood(lab, point(lab, "FNN-OCM", 0))
    titles = {"ECE": "ece", "Accuracy": "accuracy", "OOD detection probability": f"detection:{ood}"}
    content = {}
    for title, measure in titles.items():
        lines = [
            Line(scheme, lab.plan.gammas, [measured(lab, point(lab, scheme, g), measure) for g in lab.plan.gammas])
            for scheme in OCM
        ]
        flat = [
            Line(name, (), [measured(lab, one, measure)], flat=True)
            for name, one in _temperatures(lab).items()
            if one.parsed.ocm
        ]
        content[title] = lines + flat
    return {"figure": panels(content, x="gamma", log=True)}


TRADE_OFF = Study(
    "gamma-tradeoff",
    "Accuracy against OOD detection as gamma varies",
    "Test accuracy against OOD detection probability for FNN-OCM, CFNN-OCM, BNN-OCM and CBNN-OCM, test ECE as colour;"
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
    curves,
)
