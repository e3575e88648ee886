"""Many measures of the same rows in the same resamples, so that their differences are paired."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from calibrant.evaluation import Resampling
from calibrant.metrics import Interval
from calibrant.metrics.few_errors import accuracy_reach
from calibrant.metrics.functional import Array, Functional
from calibrant.metrics.resampling import limits, resampled

Formula = Callable[..., Array]


@dataclass(frozen=True, eq=False)
class Paired:
    """Measures by name: their values, and those in R resamples (R,) each, the same ones for all.

    `reach` says how far a share that is nearly 0 or 1 may lie below and above its value although resamples do not show
    it, by Wilson's interval (`metrics.few_errors`): 0 for all other measures.
    """

    values: dict[str, float]
    draws: dict[str, Array]
    level: float
    reach: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def interval(self, name: str) -> Interval:
        """A measure with its interval, at least as wide as its reach."""
        return self._interval(self.values[name], self.draws[name], self._reach(name))

    def difference(self, after: str, before: str) -> Interval:
        """The measure `after` minus the measure `before`, with the interval of the difference.

        It is at least as wide as the reaches of both, which add up in squares (Zou & Donner 2008).
        """
        (below, above), (lower, higher) = self._reach(after), self._reach(before)
        reach = math.hypot(below, higher), math.hypot(above, lower)
        return self._interval(self.values[after] - self.values[before], self.draws[after] - self.draws[before], reach)

    def _reach(self, name: str) -> tuple[float, float]:
        return self.reach.get(name, (0.0, 0.0))

    def _interval(self, value: float, draws: Array, reach: tuple[float, float]) -> Interval:
        low, high = limits(value, draws, self.level)
        return Interval(value, min(float(low), value - reach[0]), max(float(high), value + reach[1]))


class Bench:
    """Collects measures that are functions of means over rows, and evaluates all in the same resamples.

    A measure has columns (n, k), one such matrix for each sample of the bench, and a formula from their means (R, k),
    again one argument per sample, to its values (R,). One product of weights and columns then serves all measures.
    """

    def __init__(self) -> None:
        self._columns: list[tuple[Array, ...]] = []
        self._formulas: dict[str, Formula] = {}
        self._shares: dict[str, tuple[float, float]] = {}

    def add(self, name: str, formula: Formula, *columns: Array) -> None:
        """A measure; a column (n,) stands for (n, 1)."""
        self._formulas[name] = formula
        self._columns.append(tuple(part.reshape(len(part), -1).astype(np.float64) for part in columns))

    def mean(self, name: str, values: Array) -> None:
        """The mean of values (n,)."""
        self.add(name, lambda means: means[:, 0], values)

    def share(self, name: str, hits: Array, among: Array) -> None:
        """The share of `hits` (n,) in the rows `among` (n,), both of 0 and 1; 0 where there are none."""
        self._shares[name] = float(hits @ among), float(among.sum())
        self.add(name, _ratio, np.stack([hits * among, among], 1))

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
        reach = {name: accuracy_reach(*share, how.level) for name, share in self._shares.items()}
        return Paired(dict(zip(names, value.tolist())), dict(zip(names, draws.T)), how.level, reach)


def _ratio(means: Array) -> Array:
    """The first mean over the second; 0 where the second is 0."""
    result: Array = means[:, 0] / np.maximum(means[:, 1], np.finfo(np.float64).tiny)
    return result
