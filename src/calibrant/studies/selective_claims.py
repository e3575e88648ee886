"""What the paper claims of selective calibration: over coverage, against its benchmarks, and over eta."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calibrant.studies import coverage_study, eta_study
from calibrant.studies.estimates import Estimate
from calibrant.studies.findings import (
    HARDLY,
    MEASURES,
    NEARLY_ONE,
    Finding,
    accepted,
    better,
    mean_of,
    named,
    outliers_of,
    spread,
    told_accepted,
    value,
    with_selector,
)
from calibrant.studies.lab import Lab
from calibrant.studies.study import trial, within_plan
from calibrant.studies.study_trial import StudyTrial

BAYESIAN = ("SBNN-OCM", "SCBNN-OCM")


def selective_beats(lab: Lab) -> Iterator[Finding]:
    """Below half coverage SCBNN-OCM beats SBNN-OCM in accuracy, ECE and OOD detection: means over these coverages."""
    low = [c for c in lab.plan.coverages if c < 0.5]
    for measure, (mean, outliers) in _over_coverages(lab, low).items():
        yield better(
            f"{named(measure)}, SCBNN-OCM less SBNN-OCM, mean over coverages below 50 %", mean, measure, outliers
        )


def selective_beats_cifar10(lab: Lab) -> Iterator[Finding]:
    """SCBNN-OCM beats SBNN-OCM in ECE and OOD detection, and its accuracy is similar: means over all coverages."""
    for measure, (mean, outliers) in _over_coverages(lab, [c for c in lab.plan.coverages if c < 1]).items():
        what = f"{named(measure)}, SCBNN-OCM less SBNN-OCM, mean over coverages below 100 %"
        if measure == "accuracy":
            yield Finding(what, mean, -HARDLY, HARDLY)
        else:
            yield better(what, mean, measure, outliers)


def _over_coverages(lab: Lab, coverages: Sequence[float]) -> dict[str, tuple[Estimate, str]]:
    """Each measure of SCBNN-OCM less that of SBNN-OCM, the mean over `coverages`, and the accepted outliers."""
    both = {name: with_selector(lab, name) for name in ("SCBNN-OCM", "SBNN-OCM")}
    ours, other = both.values()
    return {
        measure: (
            mean_of([value(lab, ours, measure, c) - value(lab, other, measure, c) for c in coverages]),
            told_accepted(lab, both, max(coverages)) if measure == "detection" else "",
        )
        for measure in MEASURES
    }


def selection_improves_detection(lab: Lab) -> Iterator[Finding]:
    """At half coverage OOD detection is above that of the same networks without a selector."""
    for name in within_plan(lab, BAYESIAN):
        one = with_selector(lab, name)
        base = name.removeprefix("S")
        gain = value(lab, one, "detection", 0.5) - value(lab, trial(lab, base), "detection")
        outliers = told_accepted(lab, {name: one}, 0.5)
        yield Finding(f"OOD detection, {name} at 50 % coverage less {base}", gain, low=0, outliers=outliers)


def calibration_against_classification(lab: Lab) -> Iterator[Finding]:
    """At half coverage selective calibration has a lower ECE than selective classification on the same network."""
    for name in within_plan(lab, coverage_study.PAPER):
        one = with_selector(lab, name)
        other = replace(one, readout="classification")
        gain = value(lab, one, "ece", 0.5) - value(lab, other, "ece", 0.5)
        yield Finding(f"ECE at 50 % coverage, {name} less {name[1:]} + selective classification", gain, high=0)


def best_of_all(lab: Lab) -> Iterator[Finding]:
    """At half coverage SCBNN-OCM beats the paper's benchmarks: CFNN and FNN-OCM, which answer all, and SFNN."""
    ours = with_selector(lab, "SCBNN-OCM")
    benchmarks = [(name, trial(lab, name), 1.0) for name in within_plan(lab, ("CFNN", "FNN-OCM"))]
    for name, other, at in [*benchmarks, ("SFNN", with_selector(lab, "SFNN"), 0.5)]:
        for measure in MEASURES:
            gain = value(lab, ours, measure, 0.5) - value(lab, other, measure, at)
            systems = {"SCBNN-OCM": ours, **({name: other} if at < 1 else {})}
            outliers = told_accepted(lab, systems, 0.5) if measure == "detection" else ""
            yield better(f"{named(measure)}, SCBNN-OCM at 50 % coverage less {name}", gain, measure, outliers)


def compensates(lab: Lab) -> Iterator[Finding]:
    """At half coverage the ECE of SCBNN-OCM lies below that of CBNN-OCM and that of CBNN, before OCM."""
    ours = value(lab, with_selector(lab, "SCBNN-OCM"), "ece", 0.5)
    for scheme in ("CBNN-OCM", "CBNN"):
        difference = ours - value(lab, trial(lab, scheme), "ece")
        yield Finding(f"ECE, SCBNN-OCM at 50 % coverage less {scheme}", difference, high=0)


def against_fnn(lab: Lab) -> Iterator[Finding]:
    """At half coverage against FNN: +25 % accuracy, -20 % ECE, +50 % OOD detection, as ratios (points beside them)."""
    ours, fnn = with_selector(lab, "SCBNN-OCM"), trial(lab, "FNN")
    for measure, claimed in (("accuracy", 0.25), ("ece", -0.2), ("detection", 0.5)):
        new, old = value(lab, ours, measure, 0.5), value(lab, fnn, measure)
        change, points = new / old - 1.0, 100 * (new.value - old.value)
        beside = f" ({points:+.1f} points)" if math.isfinite(points) else ""
        what = f"change of {named(measure)}, SCBNN-OCM at 50 % coverage against FNN{beside}"
        low, high = (claimed, math.inf) if claimed > 0 else (-math.inf, claimed)
        outliers = told_accepted(lab, {"SCBNN-OCM": ours}, 0.5) if measure == "detection" else ""
        yield Finding(what, change, low, high, "%", outliers)


def bayesian_selectors(lab: Lab) -> Iterator[Finding]:
    """At the coverage of the study of eta, 40 %, SBNN-OCM and SCBNN-OCM are better than SFNN in every measure."""
    at = lab.plan.eta_coverage
    for name in within_plan(lab, BAYESIAN):
        both = {one: with_selector(lab, one) for one in (name, "SFNN")}
        for measure in MEASURES:
            gain = value(lab, both[name], measure, at) - value(lab, both["SFNN"], measure, at)
            outliers = told_accepted(lab, both, at) if measure == "detection" else ""
            yield better(f"{named(measure)} at {100 * at:g} % coverage, {name} less SFNN", gain, measure, outliers)


def robust_to_eta(lab: Lab) -> Iterator[Finding]:
    """Over eta each measure of the Bayesian selective schemes varies little, and less than that of SFNN."""
    at = lab.plan.eta_coverage
    sweeps = {scheme: [eta_study.point(lab, scheme, eta) for eta in lab.plan.etas] for scheme in coverage_study.PAPER}
    for measure in MEASURES:
        spreads = {s: spread([value(lab, one, measure, at) for one in trials]) for s, trials in sweeps.items()}
        for name in BAYESIAN:
            outliers = _accepted_over_eta(lab, sweeps, (name, "SFNN")) if measure == "detection" else ""
            own = f"spread of {named(measure)} over eta, {name}"
            yield Finding(own, spreads[name], high=HARDLY, outliers=outliers)
            less = f"spread of {named(measure)} over eta, SFNN less {name}"
            yield Finding(less, spreads["SFNN"] - spreads[name], low=0, outliers=outliers)


def _accepted_over_eta(lab: Lab, sweeps: Mapping[str, Sequence[StudyTrial]], names: Sequence[str]) -> str:
    """From the smallest to the largest eta, such as "SFNN 12 to 40 of 4,000"."""
    ends = {name: [accepted(lab, one, lab.plan.eta_coverage) for one in sweeps[name]] for name in names}
    told = ", ".join(f"{name} {found[0]:,.0f} to {found[-1]:,.0f}" for name, found in ends.items())
    return f"{told} of {outliers_of(lab, sweeps[names[0]][0]):,} from the least to the largest eta"


def at_seventy(lab: Lab) -> Iterator[Finding]:
    """At coverage 0.7 SCBNN-OCM reaches accuracy about 99 %, ECE under 1 %, OOD detection about 1."""
    one = with_selector(lab, "SCBNN-OCM")
    bounds = {"accuracy": (0.98, math.inf), "ece": (-math.inf, 0.01), "detection": (NEARLY_ONE, math.inf)}
    for measure, (low, high) in bounds.items():
        outliers = told_accepted(lab, {"SCBNN-OCM": one}, 0.7) if measure == "detection" else ""
        found = value(lab, one, measure, 0.7)
        yield Finding(f"{named(measure)}, SCBNN-OCM at 70 % coverage", found, low, high, "%", outliers)
