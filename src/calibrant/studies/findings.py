"""What decides a claim: measured numbers, bounds they should keep, and the verdict.

A finding is a number of which the claim says that it lies between two bounds. It holds where the whole interval lies
between them, it does not hold where the whole interval lies outside, and otherwise it cannot be told at this scale. A
claim with several findings holds if all do: each is tested at the level of one, and no correction is needed. It does
not hold if any does not, and the more findings there are, the more easily one of them lies outside by chance: their
p-values are therefore adjusted by Holm's method first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibrant.metrics import Interval
from calibrant.metrics.declarations import catalogue
from calibrant.studies.estimates import Estimate
from calibrant.studies.lab import Lab
from calibrant.studies.multiple_tests import holm
from calibrant.studies.study import first_ood, selective, trial
from calibrant.studies.study_table import markdown_cell
from calibrant.studies.study_trial import StudyTrial

Verdict = Literal["holds", "does not hold", "cannot be told at this scale"]
Applies = Literal["anywhere", "on CIFAR-10", "not on CIFAR-10"]
NEARLY_ONE, HARDLY = 0.95, 0.02  # what "nearly 1" and "hardly changes", "similar", "robust" are taken to mean
MEASURES = ("accuracy", "ece", "detection")


@dataclass(frozen=True)
class Finding:
    """A measured number; the claim says that it lies in (low, high).

    `unit`: "points" of percent, or "%" of a ratio. `outliers` says how many outliers the systems behind the number
    accept, which a detection probability among the accepted does not tell.
    """

    what: str
    estimate: Estimate
    low: float = -math.inf
    high: float = math.inf
    unit: str = "points"
    outliers: str = ""

    @property
    def p_value(self) -> float:
        """Of the claim that the number lies between the bounds; NaN where it is undefined."""
        return self.estimate.p_value(self.low, self.high)

    def holds(self, level: float) -> bool:
        """Whether the whole interval lies between the bounds."""
        found = self.interval(level)
        return self.low < found.low and found.high < self.high

    def interval(self, level: float) -> Interval:
        """The number with its interval."""
        return self.estimate.interval(level)

    def text(self, level: float) -> str:
        """The number, such as "1.2 [0.4, 2.0] points"."""
        interval = self.interval(level)
        return f"{markdown_cell(interval)} {self.unit}" if math.isfinite(interval.estimate) else "undefined"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper (or a question it leaves open), what decides it, and where it can be tested.

    `said` is where the paper makes it; "" for claims of ours.
    """

    key: str
    text: str
    findings: Callable[[Lab], Iterator[Finding]]
    where: Applies = "anywhere"
    said: str = ""


def verdicts(findings: Sequence[Finding], level: float) -> list[Verdict]:
    """Of each of the findings of one claim in one run."""
    defined = {place: p for place, finding in enumerate(findings) if not math.isnan(p := finding.p_value)}
    adjusted = dict(zip(defined, holm(list(defined.values()))))
    return [_verdict(finding, adjusted.get(place, 1.0), level) for place, finding in enumerate(findings)]


def _verdict(finding: Finding, adjusted: float, level: float) -> Verdict:
    if finding.holds(level):
        return "holds"
    return "does not hold" if adjusted <= (1 - level) / 2 else "cannot be told at this scale"


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several findings.

    >>> overall(["holds", "cannot be told at this scale"])
    'cannot be told at this scale'
    """
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "cannot be told at this scale"


def better(what: str, gain: Estimate, measure: str, outliers: str = "") -> Finding:
    """The claim that a system is better in `measure` by `gain`: of errors and of accepted outliers, less is better."""
    less = measure.partition(":")[0] in ("ece", "ood_acceptance") or measure.startswith("wrong")
    low, high = (-math.inf, 0.0) if less else (0.0, math.inf)
    return Finding(what, gain, low, high, outliers=outliers)


def value(lab: Lab, one: StudyTrial, measure: str, at: float = 1.0) -> Estimate:
    """`measure` of `one`; "detection" and "system_rate" are against the OOD set of the kind of D_u."""
    full = f"{measure}:{first_ood(lab, one)}" if measure in ("detection", "system_rate") else measure
    return lab.estimate(one, full, at)


def accepted(lab: Lab, one: StudyTrial, at: float, ood: str | None = None) -> float:
    """How many outliers of the set `ood`, by default of the kind of D_u, `one` accepts: the mean over seeds."""
    name = ood or first_ood(lab, one)
    return float(np.mean([lab.at(each, at)["accepted"][name] for each in lab.each_seed(one)]))


def outliers_of(lab: Lab, one: StudyTrial) -> int:
    """How many outliers of the kind of D_u there are."""
    return int(lab.record(one)["sizes"][first_ood(lab, one)])


def told_accepted(lab: Lab, systems: Mapping[str, StudyTrial], at: float) -> str:
    """How many outliers each of `systems` accepts, such as "SFNN 12, SBNN-OCM 7 of 4,000 at 40 %"."""
    counts = ", ".join(f"{name} {accepted(lab, one, at):,.0f}" for name, one in systems.items())
    return f"{counts} of {outliers_of(lab, next(iter(systems.values()))):,} at {100 * at:g} %"


def with_selector(lab: Lab, scheme: str) -> StudyTrial:
    """The selective `scheme`, such as SCBNN-OCM."""
    return selective(trial(lab, scheme.removeprefix("S")))


def named(measure: str) -> str:
    """What `measure` is called in tables.

    >>> named("ece"), named("detection")
    ('ECE', 'OOD detection')
    """
    return catalogue()[measure].label


def between(lab: Lab, first: str, second: str, measure: str) -> Estimate:
    """`measure` of one scheme less that of another."""
    return value(lab, trial(lab, first), measure) - value(lab, trial(lab, second), measure)


def spread(values: Sequence[Estimate]) -> Estimate:
    """The largest less the smallest."""
    numbers, draws = np.array([one.value for one in values]), np.stack([one.draws for one in values])
    low, high = min(one.bounds[0] for one in values), max(one.bounds[1] for one in values)
    return Estimate(float(np.ptp(numbers)), np.ptp(draws, axis=0), (0.0, high - low))


def mean_of(values: Sequence[Estimate]) -> Estimate:
    """The mean of those that are defined."""
    defined = [one for one in values if np.isfinite(one.value)]
    if not defined:
        return Estimate(math.nan, np.full(2, math.nan))
    bounds = min(one.bounds[0] for one in defined), max(one.bounds[1] for one in defined)
    draws = np.mean([one.draws for one in defined], axis=0)
    return Estimate(float(np.mean([one.value for one in defined])), draws, bounds)
