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

from calibrant import InputError
from calibrant.metrics.declarations import ARGUMENTS, DeclaredMeasure
from calibrant.metrics.detection_at_coverage import is_few
from calibrant.metrics.functional import Array, Functional, Terms, functional_of
from calibrant.metrics.intervals import looped
from calibrant.metrics.resampling import seed_shares
from calibrant.predictions import Predictions

Weights = Sequence[Array]
_Masks = Sequence[NDArray[np.bool_]]


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
        return _functional(*self._at(threshold))

    def by_interval(self, threshold: float) -> dict[str, tuple[list[DeclaredMeasure], Functional]]:
        """The same by the way in which intervals are made, `Functional.interval`: the measures and their functional."""
        ready, outcomes, masks = self._at(threshold)
        ways: dict[str, list[_Ready]] = {}
        for one in ready:
            ways.setdefault(one.functional.interval, []).append(one)
        return {way: ([one.measure for one in some], _functional(some, outcomes, masks)) for way, some in ways.items()}

    def _at(self, threshold: float) -> tuple[list[_Ready], list[Predictions], _Masks]:
        masks = [outcome.acceptance >= threshold for outcome in self.outcomes]
        ready = [_Ready.of(measure, self.outcomes, self.bins, masks) for measure in self.measures]
        return ready, self.outcomes, masks


@dataclass(frozen=True)
class _Ready:
    """A measure with the arrays it is of: which of the samples these are from, and its functional of their weights."""

    measure: DeclaredMeasure
    samples: tuple[int, ...]
    functional: Functional

    def chosen(self, weights: Weights, kept: Weights) -> list[Array]:
        """Of the weights of all inputs and of those that are accepted, what the measure is given."""
        return [(kept if self.measure.among_accepted else weights)[sample] for sample in self.samples]

    @property
    def compares(self) -> bool:
        return self.measure.ood and self.measure.among_accepted

    @classmethod
    def of(
        cls, measure: DeclaredMeasure, outcomes: Sequence[Predictions], bins: int, masks: _Masks | None = None
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
            sizes = tuple(len(outcomes[sample]) for sample in samples)
            functional = Functional(sizes, lambda *weights: np.full(len(weights[0]), np.nan))
        else:
            functional = looped(_called(measure, options), arrays, {}, places)
        return cls(measure, samples, functional)


def _functional(ready: Sequence[_Ready], outcomes: Sequence[Predictions], masks: _Masks) -> Functional:
    """Measures of which it is known what is accepted; with `terms` if all are sums of norms."""
    few = too_few([(mask @ outcome.weights) for mask, outcome in zip(masks, outcomes)])

    def accepted(weights: Weights) -> Weights:
        return [row * mask for row, mask in zip(weights, masks)]

    def under(*weights: Array) -> Array:
        return _columns(ready, [weights] * len(ready), accepted(weights), few)

    def terms(*base: Array) -> Callable[..., list[Terms]]:
        kept = accepted(base)
        parts = [one.functional.terms(*one.chosen(base, kept)) for one in ready if one.functional.terms]

        def terms_under(*weights: Array) -> list[Terms]:
            kept = accepted(weights)
            with np.errstate(invalid="ignore", divide="ignore"):
                return [part(*one.chosen(weights, kept))[0] for part, one in zip(parts, ready)]

        return terms_under

    def reach(level: float, *base: Array) -> Array:
        kept = accepted(base)
        none = np.zeros(2)
        ways = [(one.functional.reach, one.chosen(base, kept)) for one in ready]
        return np.stack([none if way is None else way(level, *chosen) for way, chosen in ways], axis=1)

    ranges = [(one.measure.bounds, one.functional.bounds) for one in ready]
    low = np.array([np.fmax(own[0], of[0]) for own, of in ranges], np.float64)
    high = np.array([np.fmin(own[1], of[1]) for own, of in ranges], np.float64)
    ways = {one.functional.interval for one in ready}
    sizes = tuple(map(len, outcomes))
    chosen = terms if ways == {"norms"} else None
    return Functional(sizes, under, (low, high), chosen, ways != {"none"}, reach)


def _columns(ready: Sequence[_Ready], weights: Sequence[Weights], kept: Weights, few: NDArray[np.bool_]) -> Array:
    """(R, measures): the values of each under its own `weights`, or under those `kept` if it is of the accepted."""
    columns = np.full((len(kept[0]), len(ready)), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):  # a resample in which nothing is accepted gives NaN
        for column, (one, every) in enumerate(zip(ready, weights)):
            values = one.functional.under(*one.chosen(every, kept))
            columns[:, column] = np.where(few, np.nan, values) if one.compares else values
    return columns


def _array(measure: DeclaredMeasure, argument: str, outcome: Predictions, mask: NDArray[np.bool_] | None) -> Any:
    """The array that `argument` of `measure` asks for; twice, as accepted and as rejected, without a `mask`."""
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
            raise InputError(message) from None

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

    def terms(*base: Array) -> Callable[..., list[Terms]]:
        parts = [functional.terms(*base[:-1]) for functional in functionals if functional.terms]

        def terms_under(*weights: Array) -> list[Terms]:
            shares = seed_shares(weights[-1], seeds).T
            found = [part(*weights[:-1]) for part in parts]
            return [_mean_terms(shares, [terms[position] for terms in found]) for position in range(len(found[0]))]

        return terms_under

    def reach(level: float, *base: Array) -> Array:
        parts = [functional.reach(level, *base[:-1]) for functional in functionals if functional.reach]
        return np.asarray(np.mean(parts, axis=0))

    return Functional(
        (*first.sizes, seeds), under, first.bounds, terms if first.terms else None, first.covered,
        reach if first.reach else None,
    )  # fmt: skip


def _mean_terms(shares: Array, terms: Sequence[Terms]) -> Terms:
    """The terms of a mean over seeds with `shares` (S, R): all of the seeds' terms, each by its share."""
    smooth = sum(share * alone for share, (alone, _) in zip(shares, terms))
    parts = [share[:, None, None] * vectors for share, (_, vectors) in zip(shares, terms)]
    return np.asarray(smooth), np.concatenate(parts, axis=1)
