"""What a study is, and the helpers that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calibrant.config.schemes import Scheme
from calibrant.metrics import Interval
from calibrant.metrics.declarations import catalogue
from calibrant.studies.jobs import Choice
from calibrant.studies.lab import Lab
from calibrant.studies.plan import BASES
from calibrant.studies.planning import Needs
from calibrant.studies.study_figures import Line, Points, panels
from calibrant.studies.study_table import Cell, Measured, StudyTable
from calibrant.studies.study_trial import StudyTrial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OCM = tuple(f"{base}-OCM" for base in BASES)
EIGHT = ("FNN", "CFNN", "FNN-OCM", "CFNN-OCM", "BNN", "CBNN", "BNN-OCM", "CBNN-OCM")
Figures = Mapping[str, "Figure"]


@dataclass(frozen=True)
class Study:
    """One figure or table of the paper (or one that it lacks).

    `choices`: the lambdas that must be chosen before `needs`, the trials and the coverages at which they are measured,
    can be listed. `prepare` measures what needs no training. `tables` and `figures` read records only. `within` says in
    which lab the study lives, if not in the one it is asked for in. A study of `all_bases` compares FNN with CFNN and
    BNN with CBNN, and cannot leave one out.
    """

    name: str
    title: str
    caption: str
    needs: Callable[[Lab], Needs]
    tables: Callable[[Lab], Sequence[StudyTable]]
    figures: Callable[[Lab], Figures]
    choices: Callable[[Lab], Sequence[Choice]] = lambda lab: both_choices(lab)
    prepare: Callable[[Lab], None] = lambda lab: None
    within: Callable[[Lab], Lab] = lambda lab: lab
    all_bases: bool = False


def both_choices(lab: Lab) -> list[Choice]:
    """The two choices that nearly every study needs: lambda of CFNN and of CBNN."""
    return [Choice(base, None, lab.settings.calibration.grid) for base in within_plan(lab, ("CFNN", "CBNN"))]


def within_plan(lab: Lab, schemes: Iterable[str]) -> tuple[str, ...]:
    """Those of `schemes` whose base scheme the plan runs."""
    return tuple(name for name in schemes if str(Scheme.parse(name).base) in lab.plan.schemes)


def trial(lab: Lab, scheme: str, **knobs: Any) -> StudyTrial:
    """`scheme` with the first seed and, if it is calibrated and no other is given, the chosen lambda.

    With lambda = 0 it is the scheme without the regularizer, and not trained a second time.
    """
    parsed = Scheme.parse(scheme)
    if parsed.calibrated:
        knobs.setdefault("weight", lab.chosen(str(parsed.base), knobs.get("regularizer")))
        if knobs["weight"] == 0:
            others = {name: value for name, value in knobs.items() if name not in ("weight", "regularizer")}
            return StudyTrial(str(replace(parsed, calibrated=False)), lab.seeds[0], **others)
    return StudyTrial(scheme, lab.seeds[0], **knobs)


def selective(one: StudyTrial) -> StudyTrial:
    """`one` with a selector."""
    return replace(one, scheme=f"S{one.scheme}")


def all_seeds(
    lab: Lab, trials: Iterable[StudyTrial], coverages: Sequence[float] = ()
) -> dict[StudyTrial, tuple[float, ...]]:
    """Every trial with every seed, to be measured at `coverages` beside 1."""
    return {one: tuple(coverages) for each in trials for one in lab.each_seed(each)}


def merged(*needs: Needs) -> dict[StudyTrial, tuple[float, ...]]:
    """What several needs come to: each trial once, at all the coverages asked for."""
    result: dict[StudyTrial, tuple[float, ...]] = {}
    for one in needs:
        for each, coverages in one.items():
            result[each] = tuple(sorted({*result.get(each, ()), *coverages}))
    return result


def temperature(one: StudyTrial) -> StudyTrial:
    """`one` with its probabilities scaled by a temperature."""
    return replace(one, readout="temperature")


def plain(lab: Lab, schemes: Iterable[str]) -> dict[str, StudyTrial]:
    """Each of `schemes` that the plan runs, by its name."""
    return {name: trial(lab, name) for name in within_plan(lab, schemes)}


def scaled(lab: Lab, schemes: Iterable[str]) -> dict[str, StudyTrial]:
    """Each of `schemes` with temperature scaling, as "FNN + temperature"."""
    return {f"{name} + temperature": temperature(one) for name, one in plain(lab, schemes).items()}


def measured(lab: Lab, one: StudyTrial, measure: str, coverage: float = 1.0) -> Interval:
    """A measure with its interval."""
    return lab.estimate(one, measure, coverage).interval(lab.settings.report.confidence_level)


def measured_columns(
    lab: Lab, one: StudyTrial, coverage: float, ood: str | None, left_out: Sequence[str]
) -> dict[str, Cell]:
    """All measures of `one` but those `left_out`, by column: of ID inputs or, with `ood`, of those and an OOD set.

    A measure that was declared after the record was written is not in it, and has no column.
    """
    cells: dict[str, Cell] = {}
    for known in catalogue().values():
        name, column = (known.name, known.label) if ood is None else (f"{known.name}:{ood}", f"{known.label}, {ood}")
        if known.ood == (ood is not None) and known.name not in left_out and lab.has(one, name, coverage):
            cells[column] = Measured(measured(lab, one, name, coverage), known)
    return cells


TRIVIAL = ("coverage", "ood_acceptance", "system_rate", "system_rate_corrected")
"""At coverage 1 everything is accepted, and the whole system detects what the confidence does."""


def full_row(lab: Lab, label: str, one: StudyTrial, **about: Cell) -> dict[str, Cell]:
    """A system at coverage 1: accuracy, ECE and, for each OOD set, how well it is detected."""
    row: dict[str, Cell] = {"system": label, **about, "seeds": len(lab.seeds)}
    for ood in (None, *lab.ood_sets(one)):
        row |= measured_columns(lab, one, 1.0, ood, TRIVIAL)
    return row


def first_ood(lab: Lab, one: StudyTrial) -> str:
    """The OOD test set of the kind of D_u, whose detection the paper draws."""
    return lab.ood_sets(one)[0]


def points(
    lab: Lab, name: str, trials: Sequence[StudyTrial], measures: Sequence[str], labels: Sequence[str] = ()
) -> Points:
    """`trials` in a scatter plot whose x, y and color are three `measures`."""
    x, y, color = ([lab.estimate(one, measure).value for one in trials] for measure in measures)
    return Points(name, x, y, color, labels)


def curves(
    lab: Lab,
    grid: Sequence[float],
    systems: Mapping[str, StudyTrial | Sequence[StudyTrial]],
    *,
    x: str,
    coverage: float = 1.0,
) -> Figures:
    """ECE, accuracy and OOD detection over `grid`, a line for each system: one trial is flat, several are a curve.

    Below full coverage, where detection is among the accepted, how many outliers are accepted stands beside it.
    """
    ood = first_ood(lab, trial(lab, "FNN"))
    measures = {"ECE": "ece", "Accuracy": "accuracy", "OOD detection probability": f"detection:{ood}"}
    if coverage < 1:
        measures["OOD inputs accepted"] = f"ood_acceptance:{ood}"

    def line(name: str, trials: StudyTrial | Sequence[StudyTrial], measure: str) -> Line:
        if isinstance(trials, StudyTrial):
            return Line(name, (), [measured(lab, trials, measure, coverage)], flat=True)
        return Line(name, grid, [measured(lab, one, measure, coverage) for one in trials])

    contents = {title: [line(*item, measure) for item in systems.items()] for title, measure in measures.items()}
    return {"figure": panels(contents, x=x, log=True)}


def choice_note(lab: Lab) -> str:
    """One sentence on how lambda was chosen."""
    told = []
    for base in within_plan(lab, ("CFNN", "CBNN")):
        choice = lab.choice(base)
        told.append(f"{base} {choice['weight']:g} (on fits of {choice['epochs']} epochs, seed {choice['seed']})")
    grid = ", ".join(f"{weight:g}" for weight in lab.settings.calibration.grid)
    chosen = f"Lambda by the paper's rule on validation data, grid {grid}: {', '.join(told)}. " if told else ""
    return chosen + interval_note(lab)


def interval_note(lab: Lab) -> str:
    """One sentence on what the intervals are of."""
    level, several = lab.settings.report.confidence_level, len(lab.seeds) > 1
    resampled = "test inputs and seeds" if several else "the test inputs of one training"
    return f"Measures in percent, with {100 * level:g} % intervals by the bootstrap over {resampled}."
