"""Accuracy against ECE as lambda varies, OOD detection as colour; and the same trials as curves over lambda."""

from __future__ import annotations

from collections.abc import Iterator

from calibrant.studies.jobs import Choice
from calibrant.studies.lab import Lab
from calibrant.studies.planning import Needs
from calibrant.studies.study import Figures, Study, all_seeds, first_ood, full_row, measured, temperature, trial
from calibrant.studies.study_figures import Line, Points, panels, trade_off
from calibrant.studies.study_table import Cell, StudyTable
from calibrant.studies.study_trial import StudyTrial

FAMILIES = (("FNN", "CFNN"), ("BNN", "CBNN"))


def lambdas(lab: Lab) -> tuple[float, ...]:
    """The lambdas that are drawn, without 0."""
    return tuple(float(weight) for weight in lab.plan.lambdas or lab.settings.calibration.grid)


def sweep(lab: Lab, plain: str, calibrated: str) -> list[StudyTrial]:
    """The scheme without regularizer (lambda = 0), then the calibrated one for every lambda."""
    return [trial(lab, plain), *(trial(lab, calibrated, weight=weight) for weight in lambdas(lab))]


def _rows(lab: Lab) -> Iterator[dict[str, Cell]]:
    for plain, calibrated in FAMILIES:
        for one in sweep(lab, plain, calibrated):
            yield full_row(lab, one.scheme, one, **{"lambda": one.weight or 0.0})
        yield full_row(lab, f"{plain} + temperature", temperature(trial(lab, plain)), **{"lambda": 0.0})


def needs(lab: Lab) -> Needs:
    """All lambdas, and temperature scaling of the two schemes without regularizer."""
    swept = [one for family in FAMILIES for one in sweep(lab, *family)]
    return all_seeds(lab, [*swept, *(temperature(trial(lab, plain)) for plain, _ in FAMILIES)])


def tables(lab: Lab) -> list[StudyTable]:
    """One row a lambda and scheme; lambda = 0 is FNN or BNN."""
    return [StudyTable(list(_rows(lab)), note="lambda = 0 recovers FNN from CFNN and BNN from CBNN.")]


def figures(lab: Lab) -> Figures:
    """Accuracy against ECE."""
    series = []
    for family in FAMILIES:
        swept = sweep(lab, *family)
        ood = first_ood(lab, swept[0])
        x, y, color = (
            [lab.estimate(one, measure).value for one in swept] for measure in ("ece", "accuracy", f"detection:{ood}")
        )
        labels = [f"{one.weight:g}" if one.weight else "" for one in swept]
        series += [Points(family[1], x, y, color, labels), Points(family[0], x[:1], y[:1], color[:1])]
    for plain, _ in FAMILIES:
        one = temperature(trial(lab, plain))
        at = [lab.estimate(one, measure).value for measure in ("ece", "accuracy", f"detection:{first_ood(lab, one)}")]
        series.append(Points(f"{plain} + temperature", at[:1], at[1:2], at[2:]))
    return {"figure": trade_off(series, x="ECE", y="Accuracy", color="OOD detection probability", limits=None)}


def curves(lab: Lab) -> Figures:
    """ECE, accuracy and OOD detection over lambda."""
    ood = first_ood(lab, trial(lab, "FNN"))
    content = {}
    for title, measure in (("ECE", "ece"), ("Accuracy", "accuracy"), ("OOD detection probability", f"detection:{ood}")):
        lines = []
        for plain, calibrated in FAMILIES:
            swept = sweep(lab, plain, calibrated)[1:]
            values = [measured(lab, one, measure) for one in swept]
            lines.append(Line(calibrated, lambdas(lab), values))
            for name, one in ((plain, trial(lab, plain)), (f"{plain} + temperature", temperature(trial(lab, plain)))):
                lines.append(Line(name, (), [measured(lab, one, measure)], flat=True))
        content[title] = lines
    return {"figure": panels(content, x="lambda", log=True)}


def _no_choice(lab: Lab) -> list[Choice]:
    return []


PARETO = Study(
    "lambda-pareto",
    "Accuracy against ECE as lambda varies",
    "Accuracy against ECE by changing lambda for FNN, CFNN, BNN and CBNN, OOD detection probability as colour.",
    needs,
    tables,
    figures,
    _no_choice,
)
ABLATION = Study(
    "ablation-lambda",
    "The weight of the calibration regularizer",
    "ECE, accuracy and OOD detection probability as a function of lambda for FNN, BNN, CFNN and CBNN.",
    needs,
    tables,
    curves,
    _no_choice,
)
