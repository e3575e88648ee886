"""The table of results: a row for each system, coverage and OOD set, averaged over seeds, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from calibrant.evaluation.measures import Prepared, mean_over_seeds
from calibrant.evaluation.operating_points import threshold_source, thresholds
from calibrant.evaluation.shares import widened
from calibrant.evaluation.systems import Evaluation, by_system
from calibrant.metrics import Band, Interval
from calibrant.metrics.declarations import DeclaredMeasure, catalogue
from calibrant.metrics.functional import Functional
from calibrant.metrics.resampling import resampled_band
from calibrant.predictions import Predictions

MISSING = Interval(math.nan, math.nan, math.nan)
CALLED = 100
"""The most resamples for measures that are called once per resample."""


@dataclass(frozen=True)
class Row:
    """What was measured of one system at one wanted coverage against one OOD set (None: no OOD set at hand).

    `measures` holds every measure of `metrics.catalogue()` by name, in its order, and each is an attribute too:
    `row.ece`. Percentages are fractions; NaN means undefined: of accepted inputs when none is accepted, what compares
    accepted ID and OOD inputs when fewer than 30 of either kind are, what needs OOD inputs when there are none.
    A measure of which no interval is honest has limits that are NaN. `accepted_id` and `accepted_ood` are the fewest
    over the seeds.
    """

    system: str
    wanted_coverage: float
    ood: str | None
    seeds: tuple[int, ...]
    threshold_from: str
    n_id: int
    n_ood: int
    accepted_id: int
    accepted_ood: int
    measures: Mapping[str, Interval]

    def __getattr__(self, name: str) -> Interval:
        measures = self.__dict__.get("measures", {})
        if name in measures:
            found: Interval = measures[name]
            return found
        raise AttributeError(f"a row has no measure {name!r}; it has {', '.join(measures)}")

    def flat(self) -> dict[str, Any]:
        """One level of JSON values, for CSV and Parquet: `accuracy`, `accuracy_low`, `accuracy_high`; None for NaN."""
        about = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "measures"}
        result: dict[str, Any] = {**about, "seeds": " ".join(map(str, self.seeds))}
        for name, value in self.measures.items():
            result[name] = _plain(value.estimate)
            result[f"{name}_low"], result[f"{name}_high"] = _plain(value.low), _plain(value.high)
        return result


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Resampling:
    """How intervals are made; `resamples=None` takes 1000, and fewer above 2,000 inputs, down to 200.

    Measures that are called once per resample take 100 at most.
    """

    resamples: int | None = None
    level: float = 0.95
    seed: int = 0

    def band(self, functional: Functional, outcomes: Sequence[Predictions], *, most: int | None = None) -> Band:
        """Intervals of each entry of `functional`, whose first samples are `outcomes` and whose others are of ones.

        `most` limits the number of resamples.
        """
        counts = None
        if any(outcome.count is not None for outcome in outcomes):
            counts = [outcome.weights for outcome in outcomes]
            counts += [np.ones(size) for size in functional.sizes[len(outcomes) :]]
        resamples = self.resamples or _default_resamples(sum(functional.sizes))
        resamples = resamples if most is None else min(most, resamples)
        return resampled_band(functional, counts, resamples=resamples, level=self.level, seed=self.seed)


def _default_resamples(rows: int) -> int:
    """1000 for up to 2,000 rows; fewer for more, down to 200 from 10,000 on, where intervals are narrow anyway."""
    return int(np.clip(2_000_000 // max(rows, 1), 200, 1000))


def summarize(
    evaluations: Sequence[Evaluation],
    coverages: Sequence[float] = (1.0, 0.5),
    *,
    bins: int = 15,
    resampling: Resampling | None = None,
) -> list[Row]:
    """One `Row` for each system x coverage x OOD set, in that order.

    A value is the mean over the seeds. Its interval (as of `calibrant.metrics.bootstrap`) comes from a bootstrap of
    inputs and seeds at once: in each resample the inputs are drawn anew, the same for every seed, because the seeds
    were tested on the same inputs, and the seeds are drawn anew, their spread widened by sqrt(S / (S - 1)) so that few
    seeds do not look more alike than they are. With one seed it tells how much the test data matter, not the training;
    with two or three the part of the seeds is itself rough. Intervals of accuracy, error rates and accepted outliers
    are at least as wide as Wilson's (1927), which is not empty where none or all are right, and with few wrong answers
    those of calibration errors reach as far (`calibrant.metrics.few_errors`). Thresholds are held fixed.
    They come from validation data or, said in `threshold_from`, from the test data.
    """
    rows, how = [], resampling or Resampling()
    for group in by_system(evaluations).values():
        levels = np.stack([thresholds(evaluation, coverages) for evaluation in group])
        system = _System(group, bins, how)
        for wanted, cut in zip(coverages, levels.T):
            rows += system.rows(float(wanted), [float(c) for c in cut])
    return rows


class _System:
    """The evaluations of one system, one per seed; what does not depend on the threshold is measured once."""

    def __init__(self, group: list[Evaluation], bins: int, how: Resampling) -> None:
        self.group, self.bins, self.how = group, bins, how
        self.sets: list[str | None] = [*group[0].ood] or [None]
        self.known = list(catalogue().values())
        cuts = [-math.inf] * len(group)
        self.inside = self._intervals(self._some(ood=False, at_coverage=False), None, cuts)
        self.outside = {
            name: self._intervals(self._some(ood=True, at_coverage=False), name, cuts)
            for name in self.sets
            if name is not None
        }

    def rows(self, wanted: float, cuts: list[float]) -> list[Row]:
        """One row per OOD set at a wanted coverage, with the thresholds of the seeds."""
        inside = self.inside | self._intervals(self._some(ood=False, at_coverage=True), None, cuts)
        return [self._row(wanted, cuts, name, inside) for name in self.sets]

    def _row(self, wanted: float, cuts: list[float], name: str | None, inside: dict[str, Interval]) -> Row:
        first, measured = self.group[0], dict(inside)
        accepted_ood = n_ood = 0
        if name is not None:
            measured |= self.outside[name] | self._intervals(self._some(ood=True, at_coverage=True), name, cuts)
            accepted_ood = min(_accepted(each.ood[name], cut) for each, cut in zip(self.group, cuts))
            n_ood = first.ood[name].total
        accepted_id = min(_accepted(evaluation.id, cut) for evaluation, cut in zip(self.group, cuts))
        everything = max(cuts) == -math.inf
        measured = widened(measured, self.how.level, accepted_id, n_ood, everything=everything)
        return Row(
            system=first.system,
            wanted_coverage=wanted,
            ood=name,
            seeds=tuple(evaluation.seed for evaluation in self.group),
            threshold_from=threshold_source(first),
            n_id=first.id.total,
            n_ood=n_ood,
            accepted_id=accepted_id,
            accepted_ood=accepted_ood,
            measures={measure.name: measured.get(measure.name, MISSING) for measure in self.known},
        )

    def _some(self, *, ood: bool, at_coverage: bool) -> list[DeclaredMeasure]:
        return [measure for measure in self.known if (measure.ood, measure.at_coverage) == (ood, at_coverage)]

    def _intervals(
        self, measures: Sequence[DeclaredMeasure], ood: str | None, cuts: list[float]
    ) -> dict[str, Interval]:
        found: dict[str, Interval] = {}
        for weighted in (True, False):
            chosen = [measure for measure in measures if measure.weighted == weighted]
            data = [[each.id] if ood is None else [each.id, each.ood[ood]] for each in self.group]
            parts = [Prepared(chosen, outcomes, self.bins).by_interval(cut) for outcomes, cut in zip(data, cuts)]
            for way, (some, _) in parts[0].items():
                mean = mean_over_seeds([part[way][1] for part in parts])
                band = self.how.band(mean, data[0], most=None if weighted else CALLED)
                found |= zip([measure.name for measure in some], band.intervals())
        return found


def _accepted(outcome: Predictions, cut: float) -> int:
    return round(float((outcome.acceptance >= cut) @ outcome.weights))
