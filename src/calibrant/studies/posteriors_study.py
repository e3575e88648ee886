"""Families of posteriors side by side: how right and calibrated, what they make of outliers, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from calibrant.metrics import DeclaredMeasure, Interval
from calibrant.metrics.declarations import catalogue
from calibrant.studies.estimates import Estimate, bounds_of
from calibrant.studies.findings import Finding
from calibrant.studies.lab import Lab, combine
from calibrant.studies.planning import Needs
from calibrant.studies.posterior_cost import measure_costs, read_costs
from calibrant.studies.posterior_measuring import PROPER
from calibrant.studies.study import Figures, Study, all_seeds, choice_note, merged, temperature, trial
from calibrant.studies.study_figures import dots
from calibrant.studies.study_table import Cell, Measured, StudyTable
from calibrant.studies.study_trial import StudyTrial

COVERAGE, REFERENCE = 0.8, "deterministic"
PLAIN, CALIBRATED = ("BNN", "BNN-OCM"), ("CBNN", "CBNN-OCM")
LABELS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier", "ece": "ECE", "aurc": "AURC"}


def of_seeds(lab: Lab, scheme: str) -> Lab:
    """`lab` with the seeds that `scheme` is trained with in this study."""
    plan = lab.plan.posteriors
    seeds = (plan.calibrated_seeds if scheme in CALIBRATED else None) or plan.seeds or lab.seeds
    return replace(lab, plan=lab.plan.model_copy(update={"seeds": seeds}))


def posterior_trials(lab: Lab) -> dict[tuple[str, str], StudyTrial]:
    """The trials by scheme and system."""
    plan, found = lab.plan.posteriors, dict[tuple[str, str], StudyTrial]()
    for scheme in (*PLAIN, *CALIBRATED):
        for name, changes in plan.systems.items():
            if scheme in PLAIN or name in plan.calibrated:
                found[scheme, name] = trial(of_seeds(lab, scheme), scheme, posterior=name, changes=changes)
    return found


def estimate(lab: Lab, one: StudyTrial, measure: str, coverage: float = 1.0) -> Estimate:
    """`measure` of a trial of this study, over the seeds that it is trained with."""
    own = of_seeds(lab, one.scheme)
    return combine([own.at(each, coverage)["measures"][measure] for each in own.each_seed(one)], bounds_of(measure))


def _needs(lab: Lab) -> Needs:
    parts = []
    for one in posterior_trials(lab).values():
        own = of_seeds(lab, one.scheme)
        parts += [all_seeds(own, [one]), all_seeds(own, [temperature(one)], (COVERAGE,))]
    return merged(*parts)


def _declared(measure: str) -> DeclaredMeasure:
    name = measure.partition(":")[0]
    return _PROPER.get(name) or catalogue()[name]


def _cell(lab: Lab, one: StudyTrial, measure: str, coverage: float = 1.0) -> Measured:
    known = _declared(measure)
    found = estimate(lab, one, measure, coverage).interval(lab.settings.report.confidence_level)
    low, high = np.clip([found.low, found.high], *known.bounds)
    return Measured(Interval(found.estimate, float(low), float(high)), known)


_PROPER = {name: DeclaredMeasure(name, function, LABELS[name], "lower", "number", "", "all ID")
           for name, function in PROPER.items()}  # fmt: skip


def _about(lab: Lab, scheme: str, name: str) -> dict[str, Cell]:
    return {"system": scheme, "posterior": name, "seeds": len(of_seeds(lab, scheme).seeds)}


def _inside_row(lab: Lab, scheme: str, name: str, one: StudyTrial) -> dict[str, Cell]:
    row, scaled = _about(lab, scheme, name), temperature(one)
    row["accuracy"] = _cell(lab, one, "accuracy")
    for measure in ("nll", "brier", "ece"):
        row[LABELS[measure]] = _cell(lab, one, measure)
        row[f"{LABELS[measure]}, temperature"] = _cell(lab, scaled, measure)
    row["AURC"], row["AURC, temperature"] = (_in_tables(_cell(lab, each, "aurc")) for each in (one, scaled))
    return row


def _outlier_row(lab: Lab, scheme: str, name: str, one: StudyTrial) -> dict[str, Cell]:
    """With a temperature, and at one coverage of the ID data by a threshold on the confidence."""
    row, scaled = _about(lab, scheme, name), temperature(one)
    row["ID coverage"] = _in_tables(_cell(lab, scaled, "coverage", COVERAGE))
    for ood in of_seeds(lab, scheme).ood_sets(scaled):
        row[f"AUROC, {ood}"] = _cell(lab, scaled, f"auroc:{ood}")
        row[f"FPR95, {ood}"] = _cell(lab, scaled, f"fpr95:{ood}")
        row[f"accepted, {ood}"] = _cell(lab, scaled, f"ood_acceptance:{ood}", COVERAGE)
        for share in (10, 50):
            cell = _cell(lab, scaled, f"wrong_at_{share}:{ood}", COVERAGE)
            row[f"wrong, {share} % {ood}"] = _in_tables(cell)
    return row


def _difference_row(lab: Lab, scheme: str, name: str, one: StudyTrial, base: StudyTrial) -> dict[str, Cell]:
    """`one` less `base`, resampled together."""
    row, level = _about(lab, scheme, name), lab.settings.report.confidence_level
    unseen = of_seeds(lab, scheme).ood_sets(temperature(one))[1:]
    shown: dict[str, tuple[Callable[[StudyTrial], StudyTrial], str, float]] = {
        "accuracy": (_as_it_is, "accuracy", 1.0),
        "NLL, temperature": (temperature, "nll", 1.0),
        "ECE": (_as_it_is, "ece", 1.0),
        "AURC, temperature": (temperature, "aurc", 1.0),
        **{f"wrong, 10 % {ood}": (temperature, f"wrong_at_10:{ood}", COVERAGE) for ood in unseen},
    }
    for label, (readout, measure, at) in shown.items():
        gap = estimate(lab, readout(one), measure, at) - estimate(lab, readout(base), measure, at)
        found = Measured(gap.interval(level), _declared(measure))
        row[label] = found if measure == "nll" else _in_tables(found)
    return row


def _as_it_is(one: StudyTrial) -> StudyTrial:
    return one


def _in_tables(cell: Measured) -> Interval:
    """The interval alone, of a measure that is otherwise shown on pages only."""
    return cell.interval


def _cost_row(name: str, cost: dict[str, float], base: dict[str, float]) -> dict[str, Cell]:
    row: dict[str, Cell] = {"posterior": name}
    for kind, label in (("training", "training of BNN"), ("prediction", "prediction of 1,000 inputs")):
        seconds = cost[f"{kind}_seconds"]
        row[f"{label}, s"] = float(f"{seconds:.3g}")
        row[f"{label}, relative"] = float(f"{seconds / base[f'{kind}_seconds']:.3g}")
        row[f"{label}, MB"] = float(f"{cost[f'{kind}_bytes'] / 1e6:.3g}")
    return row


def _tables(lab: Lab) -> list[StudyTable]:
    trials, costs = posterior_trials(lab), read_costs(lab)

    def rows(make: Callable[..., dict[str, Cell]]) -> list[dict[str, Cell]]:
        return [make(lab, scheme, name, one) for (scheme, name), one in trials.items()]

    made = lab.plan.posteriors.systems.items()
    changes = "; ".join(f"{name}: {', '.join(own) or 'the settings as they are'}" for name, own in made)
    inside = (
        f"{REFERENCE} in BNN is FNN, in BNN-OCM FNN-OCM. NLL in nats. Lambda of CBNN was chosen with mean_field. The"
        f" rows by their settings: {changes}. {choice_note(of_seeds(lab, 'BNN'))}"
    )
    outliers = (
        f"With a temperature fitted to validation data. Accepted: share of the OOD set whose confidence is above the"
        f" threshold that accepts {100 * COVERAGE:g} % of the validation data. Wrong: share of the answers given above"
        " it that are wrong in a stream with that share of outliers, to which every answer is wrong. The first OOD set"
        " is of the kind of D_u, training never saw the others."
    )
    cost = (
        "Seconds of one processor, timed in turns on a few images and extrapolated to the whole fit; relative to"
        f" {REFERENCE}. MB: by how much a fresh process grows at its peak, from which what the allocator keeps makes"
        " one repeat differ from another by up to 20 MB here."
    )
    base = costs[REFERENCE] if REFERENCE in costs else next(iter(costs.values()))
    firsts = {scheme: next(one for (other, _), one in trials.items() if other == scheme) for scheme, _ in trials}
    differences = [
        _difference_row(lab, scheme, name, one, firsts[scheme])
        for (scheme, name), one in trials.items()
        if one != firsts[scheme]
    ]
    against = ", ".join(f"{scheme} {one.posterior}" for scheme, one in firsts.items())
    return [
        StudyTable(rows(_inside_row), note=inside),
        StudyTable(rows(_outlier_row), "outliers", outliers),
        StudyTable(differences, "differences", f"Each row less {against}, with the same resamples; NLL in nats."),
        StudyTable([_cost_row(name, one, base) for name, one in costs.items()], "cost", cost),
    ]


def _figures(lab: Lab) -> Figures:
    trials = posterior_trials(lab)
    unseen = of_seeds(lab, "BNN").ood_sets(next(iter(trials.values())))[-1]
    shown: dict[str, tuple[Callable[[StudyTrial], StudyTrial], str, float]] = {
        "Accuracy": (_as_it_is, "accuracy", 1.0),
        "ECE": (_as_it_is, "ece", 1.0),
        "AURC": (temperature, "aurc", 1.0),
        f"Wrong, 10 % {unseen}": (temperature, f"wrong_at_10:{unseen}", COVERAGE),
    }
    contents: dict[str, Any] = {}
    for title, (readout, measure, coverage) in shown.items():
        systems = contents.setdefault(title, {})
        for (scheme, name), one in trials.items():
            systems.setdefault(scheme, {})[name] = _cell(lab, readout(one), measure, coverage).interval
    return {"figure": dots(contents, list(lab.plan.posteriors.systems))}


def one_network_each(lab: Lab) -> Iterator[Finding]:
    """AURC and wrong answers of mean field less those of every family that costs about one network to train."""
    trials = posterior_trials(lab)
    if ("BNN", "mean_field") not in trials:
        return
    ours = temperature(trials["BNN", "mean_field"])
    unseen = of_seeds(lab, "BNN").ood_sets(ours)[-1]
    for (scheme, name), one in trials.items():
        if scheme != "BNN" or name in ("mean_field", "deep_ensemble"):
            continue
        for what, measure, at in (("AURC", "aurc", 1.0), (f"wrong, 10 % {unseen}", f"wrong_at_10:{unseen}", COVERAGE)):
            gap = estimate(lab, ours, measure, at) - estimate(lab, temperature(one), measure, at)
            yield Finding(f"{what}, mean_field less {name}", gap, high=0)


STUDY = Study(
    "posteriors",
    "Families of posteriors",
    "Accuracy, ECE, the area under the curve of risk over coverage, and wrong answers in a stream with outliers, for"
    " every family of posteriors in the Bayesian schemes.",
    _needs,
    _tables,
    _figures,
    prepare=measure_costs,
    all_bases=True,
)
