"""Measures over a grid of coverages, for figures and for the page's slider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.evaluation.measures import Prepared, too_few
from calibrant.evaluation.operating_points import threshold_source, thresholds
from calibrant.evaluation.systems import Evaluation, by_system
from calibrant.metrics.bins import bin_edges
from calibrant.metrics.calibration import ReliabilityDiagram
from calibrant.metrics.declarations import DeclaredMeasure, catalogue
from calibrant.metrics.functional import Array, bin_sums
from calibrant.metrics.variation import confidence_bins
from calibrant.predictions import Predictions

DEFAULT_COVERAGES = tuple(step / 20 for step in range(2, 21))
_ENTRIES = 2**17


@dataclass(frozen=True, eq=False)
class Curves:
    """One system over G wanted `coverages`, one row per seed: arrays (S, G), NaN where undefined.

    `threshold`, `accepted` inputs, `measures[name]` for every declared measure of ID inputs that depends on the
    coverage, each also an attribute (`curves.ece`); `ood[set][name]` for those that need OOD inputs, and `"accepted"`.
    `sums` (3, G, M) are, over all seeds, the count, the sum of the confidences and the number right in each of M bins
    of the accepted, `ood_sums[set]` (G, M) the counts of accepted OOD inputs.
    """

    system: str
    seeds: tuple[int, ...]
    threshold_from: str
    coverages: Array
    threshold: Array
    accepted: Array
    measures: Mapping[str, Array]
    ood: Mapping[str, Mapping[str, Array]]
    sums: Array
    ood_sums: Mapping[str, Array]

    def __getattr__(self, name: str) -> Array:
        measures = self.__dict__.get("measures", {})
        if name in measures:
            found: Array = measures[name]
            return found
        raise AttributeError(f"curves have no measure {name!r}; they have {', '.join(measures)}")

    def reliability(self, position: int) -> ReliabilityDiagram:
        """The diagram of what is accepted at `coverages[position]`, all seeds together."""
        count, confidence, correct = self.sums[:, position]
        return ReliabilityDiagram.from_sums(bin_edges(self.sums.shape[2]), confidence, correct, count)


def coverage_curves(
    evaluations: Sequence[Evaluation], coverages: Sequence[float] = DEFAULT_COVERAGES, *, bins: int = 15
) -> list[Curves]:
    """The `Curves` of each system; thresholds as in `summarize`, and the values equal to its estimates."""
    return [_system(group, coverages, bins) for group in by_system(evaluations).values()]


def _system(group: list[Evaluation], coverages: Sequence[float], bins: int) -> Curves:
    cuts = [thresholds(evaluation, coverages) for evaluation in group]
    moving = [measure for measure in catalogue().values() if measure.at_coverage]
    inside = [measure for measure in moving if not measure.ood]
    found = [_values(inside, [each.id], cut, bins) for each, cut in zip(group, cuts)]
    counts = [_sums(each.id, cut, bins) for each, cut in zip(group, cuts)]
    ood: dict[str, dict[str, Array]] = {}
    ood_sums: dict[str, Array] = {}
    for name in group[0].ood:
        masses = [_sums(each.ood[name], cut, bins)[0] for each, cut in zip(group, cuts)]
        outside = [measure for measure in moving if measure.ood]
        values = [_values(outside, [each.id, each.ood[name]], cut, bins) for each, cut in zip(group, cuts)]
        ood[name] = {"accepted": np.stack([mass.sum(1) for mass in masses]), **_by_name(outside, values)}
        ood_sums[name] = np.sum(masses, axis=0)
    return Curves(
        group[0].system,
        tuple(evaluation.seed for evaluation in group),
        threshold_source(group[0]),
        np.array(coverages, np.float64),
        np.stack(cuts),
        np.stack([part[0].sum(1) for part in counts]),
        _by_name(inside, found),
        ood,
        np.sum(counts, axis=0),
        ood_sums,
    )


def _by_name(measures: Sequence[DeclaredMeasure], values: Sequence[Array]) -> dict[str, Array]:
    """The columns of `values`, (G, measures) for each seed, as (S, G) by measure."""
    return dict(zip([measure.name for measure in measures], np.stack(values).transpose(2, 0, 1)))


def _values(measures: Sequence[DeclaredMeasure], outcomes: Sequence[Predictions], cuts: Array, bins: int) -> Array:
    """(G, measures): the measures at each threshold."""
    prepared, parts = Prepared(measures, outcomes, bins), []
    for block in _blocks(cuts, sum(map(len, outcomes))):
        kept = [_kept(outcome, block) for outcome in outcomes]
        every = [np.broadcast_to(outcome.weights, part.shape) for outcome, part in zip(outcomes, kept)]
        parts.append(prepared.under(every, kept, too_few([part.sum(1) for part in kept])))
    return np.concatenate(parts)


def _sums(outcome: Predictions, cuts: Array, bins: int) -> Array:
    """Per bin of the accepted, (G, M) each: the count and, where labels are known, the sums of confidence and right."""
    index, parts = confidence_bins("confidence", outcome.confidence, bins), []
    for block in _blocks(cuts, len(outcome)):
        kept = _kept(outcome, block)
        values = [kept] if outcome.labels is None else [kept, kept * outcome.confidence, kept * outcome.correct]
        parts.append(np.stack([bin_sums(index, value, bins) for value in values]))
    return np.concatenate(parts, axis=1)


def _kept(outcome: Predictions, cuts: Array) -> Array:
    """The weights (G, N) with those of the rejected set to 0."""
    kept: Array = outcome.weights * (outcome.acceptance >= cuts[:, None])
    return kept


def _blocks(cuts: Array, width: int) -> list[Array]:
    """The thresholds in blocks whose masks stay in the cache of a processor."""
    rows = max(1, _ENTRIES // width)
    return [cuts[start : start + rows] for start in range(0, len(cuts), rows)]
