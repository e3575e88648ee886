"""Log loss, Brier score and class-wise ECE: measures of the probabilities of all classes, or of being right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.columns import Rows
from calibrant.audit.sample import SMALLEST, Sample
from calibrant.evaluation import Evaluation, Resampling, Row, thresholds
from calibrant.evaluation.summary import CALLED, MISSING
from calibrant.metrics import Interval, brier_score, classwise_calibration_error, negative_log_likelihood
from calibrant.metrics.declarations import DeclaredMeasure, catalogue
from calibrant.metrics.functional import Array, Functional, divide, functional_of

_WHOLE = "of the accepted ID inputs"
CLASS_SCORES: Mapping[str, DeclaredMeasure] = {
    one.name: one
    for one in (
        DeclaredMeasure(
            "log_loss", negative_log_likelihood, "log loss", "lower", "number", f"log loss {_WHOLE}", "accepted ID"
        ),
        DeclaredMeasure("brier", brier_score, "Brier score", "lower", "number", f"Brier score {_WHOLE}", "accepted ID"),
        DeclaredMeasure(
            "ece_classwise", classwise_calibration_error, "class-wise ECE", "lower", "percent",
            f"mean over the classes of the ECE of their probabilities, {_WHOLE}", "accepted ID",
        ),
    )
}  # fmt: skip
"""What an audit measures beyond the catalogue, which knows no probabilities of all classes."""


def known() -> dict[str, DeclaredMeasure]:
    """All measures of an audit by name."""
    return {**catalogue(), **CLASS_SCORES}


def losses_of(rows: Rows) -> Array:
    """-log p_y and sum_c (p_c - 1[y = c])^2 of labeled rows, (n, 2).

    Where the classes are not known, those of being right: -log of the confidence c or of 1 - c, and (c - 1[right])^2.
    """
    if rows.probabilities is None or rows.target is None:
        level, right = rows.confidence.astype(np.float64), np.asarray(rows.correct)
        own = np.where(right, level, 1 - level)
        return np.stack([-np.log(np.maximum(own, SMALLEST)), (1 - own) ** 2], 1)
    p = rows.probabilities.astype(np.float64, copy=False)
    own = p[np.arange(len(p)), rows.target]
    return np.stack([-np.log(np.maximum(own, SMALLEST)), np.einsum("nc,nc->n", p, p) - 2 * own + 1], 1)


@dataclass(frozen=True, eq=False)
class Losses:
    """Log loss and Brier score, summed over `count` (n,) rows each: `sums` and those of their `squares`, (n, 2).

    `level` (n,) is the confidence of rows that were summed up, None where each row stands for itself.
    """

    count: Array
    sums: Array
    squares: Array
    level: Array | None = None


@dataclass(frozen=True, eq=False)
class ClassScores:
    """The measures of `CLASS_SCORES` of one table at any coverage.

    The class-wise ECE is of `sample`, at most 50,000 rows and 2,000,000 probabilities, and of tables with the
    probabilities of all classes.
    """

    losses: Losses
    sample: Sample

    def added(self, rows: Sequence[Row], evaluation: Evaluation, how: Resampling, bins: int) -> list[Row]:
        """`rows` with these measures."""
        wanted = list(dict.fromkeys(row.wanted_coverage for row in rows))
        found = {
            coverage: self._at(float(cut), evaluation, how, bins)
            for coverage, cut in zip(wanted, thresholds(evaluation, wanted))
        }
        return [replace(row, measures={**row.measures, **found[row.wanted_coverage]}) for row in rows]

    def sentence(self, row: Row) -> str:
        """The measures of one of the rows, for people."""
        told = []
        for name, measure in CLASS_SCORES.items():
            value, unit = row.measures[name], " %" if measure.unit == "percent" else ""
            if not math.isnan(value.estimate):
                limits = f"{measure.text(value.low)} to {measure.text(value.high)}"
                told.append(f"{measure.label} {measure.text(value.shown)}{unit} ({limits})")
        by_class = self.sample.probabilities is not None and self.sample.target is not None
        text = f"{', '.join(told)}{'' if by_class else '; both of being right'}."
        return text[0].upper() + text[1:]

    def _at(self, cut: float, evaluation: Evaluation, how: Resampling, bins: int) -> dict[str, Interval]:
        """Where a selector accepts, and not the confidence, rows that were summed up or drawn do not say whether."""
        level, selected = self.losses.level, evaluation.id.selection is not None and cut > -math.inf
        proper: Sequence[Interval] = (MISSING, MISSING)
        if level is None:
            proper = self._resampled(evaluation.id.acceptance >= cut, how)
        elif not selected:
            proper = self._normal((level >= cut) | (cut == -math.inf), how.level)
        by_class = MISSING if selected else self._by_class(cut, how, bins)
        return dict(zip(CLASS_SCORES, (*proper, by_class)))

    def _resampled(self, accepted: NDArray[np.bool_], how: Resampling) -> Sequence[Interval]:
        values = self.losses.sums

        def under(weights: Array) -> Array:
            kept = weights * accepted
            return divide(kept @ values, kept.sum(1)[:, None])

        return how.band(Functional((len(values),), under, (0.0, math.inf)), []).intervals()

    def _normal(self, accepted: NDArray[np.bool_], level: float) -> Sequence[Interval]:
        """Of more than 20,000 rows, by the central limit theorem."""
        count = float(self.losses.count[accepted].sum())
        if not count:
            return MISSING, MISSING
        mean, square = (part[accepted].sum(0) / count for part in (self.losses.sums, self.losses.squares))
        half = NormalDist().inv_cdf((1 + level) / 2) * np.sqrt(np.maximum(square - mean**2, 0) / count)
        return [Interval(m, max(m - h, 0.0), m + h) for m, h in zip(mean.tolist(), half.tolist())]

    def _by_class(self, cut: float, how: Resampling, bins: int) -> Interval:
        p, y, accepted = self.sample.probabilities, self.sample.target, self.sample.confidence >= cut
        if p is None or y is None or not accepted.any():
            return MISSING
        functional = functional_of(classwise_calibration_error, p[accepted], y[accepted], bins)
        return how.band(functional, [], most=CALLED if p.size > MANY_ENTRIES else None).interval()


MANY_ENTRIES = 200_000
"""The number of probabilities from which on the class-wise ECE is resampled a hundred times only."""
