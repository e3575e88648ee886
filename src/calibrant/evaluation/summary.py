"""The table of results: a row for each system, coverage and OOD set, averaged over seeds, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from calibrant.evaluation.measures import ID_MEASURES, OOD_MEASURES, id_measures, mean_over_seeds, ood_measures
from calibrant.evaluation.operating_points import threshold_source, thresholds
from calibrant.evaluation.systems import Evaluation, by_system
from calibrant.metrics import Band, Interval
from calibrant.metrics.functional import Functional
from calibrant.metrics.resampling import resampled_band
from calibrant.predictions import Predictions

MEASURES = (*ID_MEASURES, *OOD_MEASURES)


@dataclass(frozen=True)
class Row:
    """What was measured of one system at one wanted coverage against one OOD set (None: no OOD set at hand).

    Measures are fractions; NaN means undefined: of accepted inputs when none is accepted, `detection`, `auroc` and
    `fpr95` when fewer than 30 of either kind are. `accepted_id` and `accepted_ood` are the fewest over the seeds.
    `detection` is (1 + TV) / 2 between accepted ID and accepted OOD inputs, `system_rate` counts a rejection as a
    detection; the corrected ones have the bias of a histogram taken out. `auroc` and `fpr95` are of the accepted, by
    the OOD score; `aurc` is of the whole curve, whatever the coverage.
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
    coverage: Interval
    accuracy: Interval
    ece: Interval
    aurc: Interval
    ood_acceptance: Interval
    detection: Interval
    detection_corrected: Interval
    system_rate: Interval
    system_rate_corrected: Interval
    auroc: Interval
    fpr95: Interval

    def flat(self) -> dict[str, Any]:
        """One level of JSON values, for CSV and Parquet: `accuracy`, `accuracy_low`, `accuracy_high`; None for NaN."""
        result: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Interval):
                result[item.name] = _plain(value.estimate)
                result[f"{item.name}_low"], result[f"{item.name}_high"] = _plain(value.low), _plain(value.high)
            else:
                result[item.name] = " ".join(map(str, value)) if isinstance(value, tuple) else value
        return result


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class Resampling:
    """How intervals are made; `resamples=None` takes 1000, and fewer above 2,000 inputs, down to 200."""

    resamples: int | None = None
    level: float = 0.95
    seed: int = 0

    def band(self, functional: Functional, outcomes: Sequence[Predictions]) -> Band:
        """Intervals of each entry of `functional`, whose first samples are `outcomes` and whose others are of ones."""
        counts = None
        if any(outcome.count is not None for outcome in outcomes):
            counts = [outcome.weights for outcome in outcomes]
            counts += [np.ones(size) for size in functional.sizes[len(outcomes) :]]
        resamples = self.resamples or _default_resamples(sum(functional.sizes))
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

    A value is the mean over the seeds. Its interval is a bootstrap of inputs and seeds at once: in each resample the
    inputs are drawn anew, the same for every seed, because the seeds were tested on the same inputs, and the seeds are
    drawn anew, their spread widened by sqrt(S / (S - 1)) so that few seeds do not look more alike than they are. With
    one seed it tells how much the test data matter, not the training; with two or three the part of the seeds is
    itself rough. Thresholds are held fixed. They come from validation data or, said in `threshold_from`, from the test
    data.
    """
    rows = []
    for group in by_system(evaluations).values():
        levels = np.stack([thresholds(evaluation, coverages) for evaluation in group])
        for wanted, cut in zip(coverages, levels.T):
            rows += _rows(group, float(wanted), [float(c) for c in cut], bins, resampling or Resampling())
    return rows


def _rows(group: list[Evaluation], wanted: float, cuts: list[float], bins: int, how: Resampling) -> list[Row]:
    first = group[0]
    parts = [id_measures(evaluation.id, cut, bins) for evaluation, cut in zip(group, cuts)]
    inside = how.band(mean_over_seeds(parts), [first.id])
    common: dict[str, Any] = {
        "system": first.system,
        "wanted_coverage": wanted,
        "seeds": tuple(evaluation.seed for evaluation in group),
        "threshold_from": threshold_source(first),
        "n_id": first.id.total,
        "accepted_id": min(_accepted(evaluation.id, cut) for evaluation, cut in zip(group, cuts)),
        **dict(zip(ID_MEASURES, inside.intervals())),
    }
    if not first.ood:
        undefined: dict[str, Any] = dict.fromkeys(OOD_MEASURES, Interval(math.nan, math.nan, math.nan))
        return [Row(ood=None, n_ood=0, accepted_ood=0, **common, **undefined)]
    rows = []
    for name in first.ood:
        outcomes = [evaluation.ood[name] for evaluation in group]
        parts = [ood_measures(each.id, outcome, cut, bins) for each, outcome, cut in zip(group, outcomes, cuts)]
        outside = how.band(mean_over_seeds(parts), [first.id, outcomes[0]])
        accepted = min(_accepted(outcome, cut) for outcome, cut in zip(outcomes, cuts))
        measures: dict[str, Any] = dict(zip(OOD_MEASURES, outside.intervals()))
        rows.append(Row(ood=name, n_ood=outcomes[0].total, accepted_ood=accepted, **common, **measures))
    return rows


def _accepted(outcome: Predictions, cut: float) -> int:
    return round(float((outcome.acceptance >= cut) @ outcome.weights))
