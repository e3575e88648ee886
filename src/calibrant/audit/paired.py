"""Many measures of the same rows in the same resamples, so that their differences are paired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibrant.evaluation import Resampling
from calibrant.metrics import Interval
from calibrant.metrics.functional import Array, Functional
from calibrant.metrics.resampling import limits, resampled

Formula = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class Paired:
    """Measures by name: their values, and those in R resamples (R,) each, the same ones for all."""

    values: dict[str, float]
    draws: dict[str, Array]
    level: float

    def interval(self, name: str) -> Interval:
        """A measure with its interval."""
        return self._interval(self.values[name], self.draws[name])

    def difference(self, after: str, before: str) -> Interval:
        """The measure `after` minus the measure `before`, with the interval of the difference."""
        return self._interval(self.values[after] - self.values[before], self.draws[after] - self.draws[before])

    def _interval(self, value: float, draws: Array) -> Interval:
        low, high = limits(value, draws, self.level)
        return Interval(value, min(float(low), value), max(float(high), value))


class Bench:
    """Collects measures that are functions of means over rows, and evaluates all in the same resamples.

    A measure has columns (n, k), one such matrix for each sample of the bench, and a formula from their means (R, k),
    again one argument per sample, to its values (R,). One product of weights and columns then serves all measures.
    """

    def __init__(self) -> None:
        self._columns: list[tuple[Array, ...]] = []
        self._formulas: dict[str, Formula] = {}

    def add(self, name: str, formula: Formula, *columns: Array) -> None:
        """A measure; a column (n,) stands for (n, 1)."""
        self._formulas[name] = formula
        self._columns.append(tuple(part.reshape(len(part), -1).astype(np.float64) for part in columns))

    def mean(self, name: str, values: Array) -> None:
        """The mean of values (n,)."""
        self.add(name, lambda means: means[:, 0], values)

    def run(self, how: Resampling) -> Paired:
        """All measures and their resamples."""
        samples = [np.concatenate(parts, 1) for parts in zip(*self._columns)]
        ends = [np.cumsum([part.shape[1] for part in parts])[:-1] for parts in zip(*self._columns)]

        def under(*weights: Array) -> Array:
            means = [w @ columns / w.sum(1)[:, None] for w, columns in zip(weights, samples)]
            pieces = zip(*(np.split(mean, end, axis=1) for mean, end in zip(means, ends)))
            return np.stack([formula(*parts) for formula, parts in zip(self._formulas.values(), pieces)], 1)

        functional = Functional(tuple(map(len, samples)), under, (-np.inf, np.inf))
        resamples = how.resamples or int(np.clip(2_000_000 // sum(functional.sizes), 200, 1000))
        value, draws = functional.value(), resampled(functional, resamples=resamples, seed=how.seed)
        names = list(self._formulas)
        return Paired(dict(zip(names, value.tolist())), dict(zip(names, draws.T)), how.level)


def calibration_error(means: Array) -> Array:
    """The ECE (R,) of the means of `residuals` (R, bins): the sum of their absolute values."""
    result: Array = np.abs(means).sum(1)
    return result


def residuals(confidence: Array, correct: Array, bins: int) -> Array:
    """Confidence minus correctness of each row in the column of its bin (a, b], (n, bins); 0 in the others."""
    place = np.searchsorted(np.arange(1, bins) / bins, confidence)
    result = np.zeros((len(confidence), bins))
    result[np.arange(len(confidence)), place] = confidence - correct
    return result
