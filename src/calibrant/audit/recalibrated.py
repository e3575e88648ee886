"""What recalibration would gain: log loss, Brier score and ECE before and after, by cross-fitting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.paired import Bench, Paired
from calibrant.audit.sample import Sample
from calibrant.calibrators.choosing import cross_fitted, fold_numbers, log_loss_rows, simplest_best
from calibrant.calibrators.fits import FITS, softmax
from calibrant.evaluation import Resampling
from calibrant.metrics import Interval, expected_calibration_error
from calibrant.metrics.functional import Array, functional_of, stacked

UNCHANGED = "none"
LOSSES = ("log loss", "Brier score")
FEWEST_ERRORS = 10
"""Of fewer wrong answers, or fewer right ones, no gain is told: one more could turn it into a loss."""


@dataclass(frozen=True)
class LossParts:
    """A proper score in two parts: `calibration`, which recalibration removes, and `refinement`, what is left.

    Refinement is the cross-fitted loss after the best recalibration, which is called `by`; "none" where no
    recalibration lowers the loss. It is lower only for a model that tells the inputs apart better.
    """

    measure: str
    total: float
    calibration: Interval
    refinement: Interval
    by: str

    def flat(self) -> dict[str, str | float | None]:
        """As plain values, for JSON."""
        ends = {
            f"{name}_{end}": getattr(value, end)
            for name, value in (("calibration", self.calibration), ("refinement", self.refinement))
            for end in ("low", "high")
        }
        middle = {"calibration": self.calibration.estimate, "refinement": self.refinement.estimate}
        told = {name: None if math.isnan(value) else value for name, value in {**middle, **ends}.items()}
        return {"measure": self.measure, "total": self.total, **told, "by": self.by}


@dataclass(frozen=True, eq=False)
class Recalibrations:
    """Cross-fitted probabilities (n, C) by the name of the calibrator, those of the table first, and their measures.

    `errors` are the ECEs, each with an interval of its own: bootstraps of their differences cover too seldom. `best` is
    the simplest calibrator that no other beats by more than one standard error of the log loss. `few` is how many
    answers are wrong, or right if fewer are, before recalibration.
    """

    probabilities: Mapping[str, Array]
    labels: NDArray[np.int64]
    measured: Paired
    errors: Mapping[str, Interval]
    best: str
    few: int

    @property
    def told(self) -> bool:
        """Whether enough answers are wrong, and enough right, to tell what recalibration gains."""
        return self.few >= FEWEST_ERRORS

    def difference(self, after: str, before: str) -> Interval:
        """As of `Paired`, but without an interval where too few answers are wrong, or right."""
        found = self.measured.difference(after, before)
        return found if self.told else Interval(found.estimate, math.nan, math.nan)

    def changed(self, name: str) -> float:
        """The share of rows whose most probable class is another one than before."""
        before, after = (self.probabilities[one].argmax(1) for one in (UNCHANGED, name))
        return float((before != after).mean())

    def parts(self, measure: str) -> LossParts:
        """The split of one of `LOSSES`."""
        by = min(self.probabilities, key=lambda name: self.measured.values[f"{name}: {measure}"])
        before, after = f"{UNCHANGED}: {measure}", f"{by}: {measure}"
        left, removed = self.measured.interval(after), self.difference(before, after)
        left = left if self.told else Interval(left.estimate, math.nan, math.nan)
        return LossParts(measure, self.measured.values[before], removed, left, by)


def recalibrate(sample: Sample, how: Resampling, *, folds: int, bins: int) -> Recalibrations:
    """Measure every calibrator that the table allows; of a confidence only, isotonic regression alone."""
    z, y = sample.z, sample.labels
    fold = fold_numbers(len(z), folds, how.seed)
    names = tuple(FITS) if sample.by_class else ("isotonic",)
    probabilities = {UNCHANGED: _given(sample)}
    probabilities |= {name: cross_fitted(FITS[name], z, y, fold) for name in names}
    bench, losses, errors = Bench(), {}, {}
    for name, p in probabilities.items():
        losses[name] = log_loss_rows(p, y)
        bench.mean(f"{name}: log loss", losses[name])
        bench.mean(f"{name}: Brier score", _brier(p, y, by_class=sample.by_class))
        level = p.max(1) if sample.by_class else p[:, 1]
        right = (p.argmax(1) == y if sample.by_class else y).astype(np.float64)
        errors[name] = functional_of(expected_calibration_error, np.clip(level, 0, 1), right, bins)
        bench.mean(f"{name}: accuracy", right)
    band = how.band(stacked(list(errors.values())), [])
    found = dict(zip(errors, band.intervals()))
    wrong = int(sample.wrong.sum())
    few = min(wrong, len(sample) - wrong)
    return Recalibrations(probabilities, y, bench.run(how), found, simplest_best(losses), few)


def _given(sample: Sample) -> Array:
    """The table's own probabilities."""
    if sample.by_class and sample.probabilities is not None:
        return sample.probabilities
    return softmax(sample.z)


def _brier(p: Array, y: NDArray[np.int64], *, by_class: bool) -> Array:
    """sum_c (p_c - 1[y = c])^2, (n,); of a confidence only, the square of the one difference."""
    if not by_class:
        return np.asarray((p[:, 1] - y) ** 2)
    result: Array = (p**2).sum(1) - 2 * p[np.arange(len(y)), y] + 1
    return result
