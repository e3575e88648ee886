"""The declared measures of a system at a threshold, as functionals of how much each input counts.

What is accepted is told by the weights: a rejected input has weight 0 among the accepted. The threshold is held fixed,
as in a system that is deployed: resampling the test data does not move it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics.declarations import ARGUMENTS, DeclaredMeasure
from calibrant.metrics.detection_at_coverage import is_few
from calibrant.metrics.functional import Array, Functional, Terms, functional_of
from calibrant.metrics.intervals import looped
from calibrant.metrics.resampling import seed_shares
from calibrant.predictions import Predictions

Weights = Sequence[Array]


class Prepared:
    """Declared `measures` of one system on its data, to be evaluated at any threshold and under any weights.

    `outcomes` are the ID inputs and, for measures that need them, the OOD inputs. A measure that is not evaluated under
    weights, but called with rows, is undefined where a row of the data stands for many inputs.
    """

    def __init__(self, measures: Sequence[DeclaredMeasure], outcomes: Sequence[Predictions], bins: int) -> None:
        self.measures, self.outcomes = list(measures), list(outcomes)
        self._ready = [_Ready.of(measure, outcomes, bins) for measure in measures]

    def under(self, weights: Weights, kept: Weights, few: NDArray[np.bool_]) -> Array:
        """(R, measures): their values under `weights`, (R, n) for each outcome, of which those `kept` are accepted.

        `few`, one or (R,), says where too few are accepted for ID and OOD inputs to be compared.
        """
        columns = np.full((len(weights[0]), len(self._ready)), np.nan)
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample in which nothing is accepted gives NaN
            for column, (ready, chosen) in enumerate(zip(self._ready, self._chosen(weights, kept))):
                values = ready.functional.under(*chosen)
                columns[:, column] = np.where(few, np.nan, values) if ready.compares else values
        return columns

    def _chosen(self, weights: Weights, kept: Weights) -> list[list[Array]]:
        """The weights that each measure is given: of all inputs, of those that are accepted, or of both in turn."""
        split: Weights = ()
        if any(ready.measure.takes_accepted for ready in self._ready):
            split = [np.concatenate([taken, every - taken], axis=1) for every, taken in zip(weights, kept)]
        result = []
        for ready in self._ready:
            chosen = split if ready.measure.takes_accepted else kept if ready.measure.among_accepted else weights
            result.append([chosen[sample] for sample in ready.samples])
        return result

    def some(self, interval: str) -> Prepared:
        """Those of the measures whose interval is made so: "norms", "basic" or "none"."""
        part = copy.copy(self)
        part._ready = [ready for ready in self._ready if ready.functional.interval == interval]
        part.measures = [ready.measure for ready in part._ready]
        return part

    def at(self, threshold: float) -> Functional:
        """The measures at `threshold`: a functional with values (R, measures)."""
        masks = [outcome.acceptance >= threshold for outcome in self.outcomes]
        few = too_few([(mask @ outcome.weights) for mask, outcome in zip(masks, self.outcomes)])

        def under(*weights: Array) -> Array:
            return self.under(weights, [row * mask for row, mask in zip(weights, masks)], few)

        def terms(*base: Array) -> Callable[..., list[Terms]]:
            rows = self._chosen(base, [row * mask for row, mask in zip(base, masks)])
            parts = [ready.functional.terms(*row) for ready, row in zip(self._ready, rows) if ready.functional.terms]

            def terms_under(*weights: Array) -> list[Terms]:
                chosen = self._chosen(weights, [row * mask for row, mask in zip(weights, masks)])
                return [part(*row)[0] for part, row in zip(parts, chosen)]

            return terms_under

        ranges = [(ready.measure.bounds, ready.functional.bounds) for ready in self._ready]
        low = np.array([max(own[0], of[0]) for own, of in ranges])
        high = np.array([min(own[1], of[1]) for own, of in ranges])
        norms, uncovered = ({r.functional.interval for r in self._ready} == {way} for way in ("norms", "none"))
        return Functional(tuple(map(len, self.outcomes)), under, (low, high), terms if norms else None, not uncovered)


@dataclass(frozen=True)
class _Ready:
    """A measure with the arrays it is of: which of the samples these are from, and its functional of their weights."""

    measure: DeclaredMeasure
    samples: tuple[int, ...]
    functional: Functional

    @property
    def compares(self) -> bool:
        return self.measure.ood and self.measure.among_accepted

    @classmethod
    def of(cls, measure: DeclaredMeasure, outcomes: Sequence[Predictions], bins: int) -> _Ready:
        places = [1 if measure.ood and name.startswith("ood_") else 0 for name in measure.arrays]
        samples = tuple(sorted(set(places)))
        arrays = [_array(measure, name, outcomes[place]) for name, place in zip(measure.arrays, places)]
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


def _array(measure: DeclaredMeasure, argument: str, outcome: Predictions) -> Any:
    """The array that `argument` of `measure` asks for; twice, as accepted and as rejected, where it needs to know."""
    name = argument.removeprefix("id_").removeprefix("ood_") if measure.ood else argument
    if name == "accepted":
        return np.repeat([True, False], len(outcome))
    values = getattr(outcome, ARGUMENTS[name])
    return np.concatenate([values, values]) if measure.takes_accepted else values


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

    def terms(*base: Array) -> Callable[..., list[Terms]]:
        parts = [functional.terms(*base[:-1]) for functional in functionals if functional.terms]

        def terms_under(*weights: Array) -> list[Terms]:
            shares = seed_shares(weights[-1], seeds).T
            found = [part(*weights[:-1]) for part in parts]
            return [_mean_terms(shares, [terms[position] for terms in found]) for position in range(len(found[0]))]

        return terms_under

    return Functional((*first.sizes, seeds), under, first.bounds, terms if first.terms else None, first.covered)


def _mean_terms(shares: Array, terms: Sequence[Terms]) -> Terms:
    """The terms of a mean over seeds with `shares` (S, R): all of the seeds' terms, each by its share."""
    smooth = sum(share * alone for share, (alone, _) in zip(shares, terms))
    parts = [share[:, None, None] * vectors for share, (_, vectors) in zip(shares, terms)]
    return np.asarray(smooth), np.concatenate(parts, axis=1)
