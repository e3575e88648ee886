"""The declared measures of a system at a threshold, as functionals of how much each input counts.

What is accepted is told by the weights: a rejected input has weight 0 among the accepted. The threshold is held fixed,
as in a system that is deployed: resampling the test data does not move it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics.declarations import ARGUMENTS, DeclaredMeasure
from calibrant.metrics.detection_at_coverage import is_few
from calibrant.metrics.functional import Array, Functional, functional_of
from calibrant.metrics.intervals import looped
from calibrant.metrics.resampling import seed_shares
from calibrant.predictions import Predictions

Weights = Sequence[Array]
Masks = Sequence[NDArray[np.bool_]]


class Prepared:
    """Declared `measures` of one system on its data, to be evaluated at any threshold and under any weights.

    `outcomes` are the ID inputs and, for measures that need them, the OOD inputs. A measure that is not evaluated under
    weights, but called with rows, is undefined where a row of the data stands for many inputs.
    """

    def __init__(self, measures: Sequence[DeclaredMeasure], outcomes: Sequence[Predictions], bins: int) -> None:
        self.measures, self.outcomes, self.bins = list(measures), list(outcomes), bins

    @functools.cached_property
    def _ready(self) -> list[_Ready]:
        return [_Ready.of(measure, self.outcomes, self.bins) for measure in self.measures]

    def under(self, weights: Weights, kept: Weights, few: NDArray[np.bool_]) -> Array:
        """(R, measures): their values under `weights`, (R, n) for each outcome, of which those `kept` are accepted.

        `few`, one or (R,), says where too few are accepted for ID and OOD inputs to be compared.
        """
        split = None
        if any(ready.measure.takes_accepted for ready in self._ready):
            split = [np.concatenate([taken, every - taken], axis=1) for every, taken in zip(weights, kept)]
        chosen = [split if split and ready.measure.takes_accepted else weights for ready in self._ready]
        return _columns(self._ready, chosen, kept, few)

    def at(self, threshold: float) -> Functional:
        """The measures at `threshold`: a functional with values (R, measures)."""
        masks = [outcome.acceptance >= threshold for outcome in self.outcomes]
        ready = [_Ready.of(measure, self.outcomes, self.bins, masks) for measure in self.measures]
        few = too_few([(mask @ outcome.weights) for mask, outcome in zip(masks, self.outcomes)])

        def under(*weights: Array) -> Array:
            kept = [row * mask for row, mask in zip(weights, masks)]
            return _columns(ready, [weights] * len(ready), kept, few)

        low, high = np.array([measure.bounds for measure in self.measures]).reshape(-1, 2).T
        return Functional(tuple(map(len, self.outcomes)), under, (low, high))


@dataclass(frozen=True)
class _Ready:
    """A measure with the arrays it is of: which of the samples these are from, and its values under their weights."""

    measure: DeclaredMeasure
    samples: tuple[int, ...]
    under: Callable[[Weights], Array]

    @property
    def compares(self) -> bool:
        return self.measure.ood and self.measure.among_accepted

    @classmethod
    def of(
        cls, measure: DeclaredMeasure, outcomes: Sequence[Predictions], bins: int, masks: Masks | None = None
    ) -> _Ready:
        """With `masks` it is known what is accepted; without, it is told by the weights of twice as many rows."""
        places = [1 if measure.ood and name.startswith("ood_") else 0 for name in measure.arrays]
        samples = tuple(sorted(set(places)))
        known: Sequence[Any] = [None] * len(outcomes) if masks is None else masks
        arrays = [_array(measure, name, outcomes[i], known[i]) for name, i in zip(measure.arrays, places)]
        options: dict[str, Any] = {**measure.options, **({"bins": bins} if measure.takes_bins else {})}
        if measure.weighted:
            named = dict(zip(measure.arrays, arrays))
            functional = functional_of(measure.function, **named, **options)
        elif any(outcomes[sample].count is not None for sample in samples):
            return cls(measure, samples, lambda weights: np.full(len(weights[0]), np.nan))
        else:
            functional = looped(_called(measure, options), arrays, {}, places)
        return cls(measure, samples, lambda weights: functional.under(*weights))


def _columns(ready: Sequence[_Ready], weights: Sequence[Weights], kept: Weights, few: NDArray[np.bool_]) -> Array:
    """(R, measures): the values of each under its own `weights`, or those `kept` if it is of the accepted."""
    columns = np.full((len(kept[0]), len(ready)), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a resample in which nothing is accepted gives NaN
        for column, (one, every) in enumerate(zip(ready, weights)):
            chosen = kept if one.measure.among_accepted else every
            values = one.under([chosen[sample] for sample in one.samples])
            columns[:, column] = np.where(few, np.nan, values) if one.compares else values
    return columns


def _array(measure: DeclaredMeasure, argument: str, outcome: Predictions, mask: NDArray[np.bool_] | None) -> Any:
    """The array that `argument` of `measure` asks for; twice, as accepted and rejected, where no `mask` is known."""
    name = argument.removeprefix("id_").removeprefix("ood_") if measure.ood else argument
    if name == "accepted":
        return np.repeat([True, False], len(outcome)) if mask is None else mask
    values = getattr(outcome, ARGUMENTS[name])
    return np.concatenate([values, values]) if measure.takes_accepted and mask is None else values


def _called(measure: DeclaredMeasure, options: dict[str, Any]) -> Callable[..., float]:
    """The function of a measure from outside, called by name and checked; NaN of no inputs."""

    def call(*arrays: Any) -> float:
        if not all(map(len, arrays)):
            return math.nan
        value = measure.function(**dict(zip(measure.arrays, arrays)), **options)
        try:
            return float(value)
        except (TypeError, ValueError):
            message = f"measure {measure.name} returned {type(value).__name__}; it must return one number"
            raise ValueError(message) from None

    return call


def too_few(accepted: Sequence[Array | float]) -> NDArray[np.bool_]:
    """Whether too few ID or OOD inputs are accepted to be compared; without OOD inputs there is nothing to compare."""
    return is_few(*accepted) if len(accepted) == 2 else np.asarray(False)


def mean_over_seeds(functionals: Sequence[Functional]) -> Functional:
    """The mean over seeds, each seed's functional being of the same inputs.

    The seeds are one more sample to be resampled: with counts v_s, S of them in all, the value is

        mean_s m_s + sqrt(S / (S - 1)) sum_s (v_s - 1) / S m_s

    where m_s is the measure of seed s under weights that all seeds share; `seed_shares` explains the root. With one
    seed the interval is of the inputs alone.
    """
    first, seeds = functionals[0], len(functionals)
    if seeds == 1:
        return first

    def under(*weights: Array) -> Array:
        values = np.stack([functional.under(*weights[:-1]) for functional in functionals], axis=1)
        mean: Array = np.einsum("rs,rsk->rk", seed_shares(weights[-1], seeds), values)
        return mean

    return Functional((*first.sizes, seeds), under, first.bounds)
