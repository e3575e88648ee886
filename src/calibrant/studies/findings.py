"""What decides a claim: measured numbers, bounds they should keep, and the verdict.

A finding is a number of which the claim says that it lies between two bounds. It holds where the whole interval lies
between them, it does not hold where the whole interval lies outside, and otherwise it cannot be told at this scale. A
claim with several findings holds if all do, and does not hold if any does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calibrant.metrics import Interval
from calibrant.studies.estimates import Estimate
from calibrant.studies.lab import Lab
from calibrant.studies.study import first_ood, trial
from calibrant.studies.study_table import markdown_cell
from calibrant.studies.study_trial import StudyTrial

Verdict = Literal["holds", "does not hold", "cannot be told at this scale"]


@dataclass(frozen=True)
class Finding:
    """A measured number; the claim says that it lies in (low, high). `unit`: "points" of percent, or "%" of a ratio."""

    what: str
    estimate: Estimate
    low: float = -math.inf
    high: float = math.inf
    unit: str = "points"

    def verdict(self, level: float) -> Verdict:
        """By where the interval lies."""
        found = self.interval(level)
        if not math.isfinite(found.low):
            return "cannot be told at this scale"
        if self.low < found.low and found.high < self.high:
            return "holds"
        outside = found.high <= self.low or found.low >= self.high
        return "does not hold" if outside else "cannot be told at this scale"

    def interval(self, level: float) -> Interval:
        """The number with its interval."""
        return self.estimate.interval(level)

    def text(self, level: float) -> str:
        """The number, such as "1.2 [0.4, 2.0] points"."""
        interval = self.interval(level)
        return f"{markdown_cell(interval)} {self.unit}" if math.isfinite(interval.estimate) else "undefined"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or a question it leaves open), where it can be tested, and what decides it."""

    key: str
    text: str
    findings: Callable[[Lab], Iterator[Finding]]
    cifar10_only: bool = False


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several findings.

    >>> overall(["holds", "cannot be told at this scale"])
    'cannot be told at this scale'
    """
    if "does not hold" in verdicts:
        return "does not hold"
    return "holds" if verdicts and set(verdicts) == {"holds"} else "cannot be told at this scale"


def value(lab: Lab, one: StudyTrial, measure: str, at: float = 1.0) -> Estimate:
    """`measure` of `one`; "detection" and "system_rate" are against the OOD set of the kind of D_u."""
    full = f"{measure}:{first_ood(lab, one)}" if measure in ("detection", "system_rate") else measure
    return lab.estimate(one, full, at)


def between(lab: Lab, first: str, second: str, measure: str) -> Estimate:
    """`measure` of one scheme less that of another."""
    return value(lab, trial(lab, first), measure) - value(lab, trial(lab, second), measure)


def spread(values: Sequence[Estimate]) -> Estimate:
    """The largest less the smallest."""
    numbers, draws = np.array([one.value for one in values]), np.stack([one.draws for one in values])
    return Estimate(float(np.ptp(numbers)), np.ptp(draws, axis=0))


def mean_of(values: Sequence[Estimate]) -> Estimate:
    """The mean of those that are defined."""
    defined = [one for one in values if np.isfinite(one.value)]
    if not defined:
        return Estimate(math.nan, np.full(2, math.nan))
    return Estimate(float(np.mean([one.value for one in defined])), np.mean([one.draws for one in defined], axis=0))
