"""Measures over a grid of coverages, for figures and for the page's slider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.evaluation.measures import CURVE_MEASURES, accuracy_and_ece
from calibrant.evaluation.operating_points import threshold_source, thresholds
from calibrant.evaluation.systems import Evaluation, by_system
from calibrant.metrics.bins import bin_edges
from calibrant.metrics.calibration import ReliabilityDiagram
from calibrant.metrics.detection_at_coverage import detection_rates, is_few
from calibrant.metrics.functional import Array, array, bin_sums
from calibrant.metrics.variation import ConfidencePair, confidence_bins
from calibrant.predictions import Predictions

DEFAULT_COVERAGES = tuple(step / 20 for step in range(2, 21))
_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class Curves:
    """One system over G wanted `coverages`, one row per seed: arrays (S, G), NaN where undefined.

    `threshold`, achieved `coverage`, `accepted` inputs, `accuracy`, `ece`; `ood[name][measure]` for the measures
    `CURVE_MEASURES`, and `"accepted"`. `sums` (3, G, M) are, over all seeds, the count, the sum of the confidences and
    the number right in each of M bins of the accepted, `ood_sums[name]` (G, M) the counts of accepted OOD inputs.
    """

    system: str
    seeds: tuple[int, ...]
    threshold_from: str
    coverages: Array
    threshold: Array
    coverage: Array
    accepted: Array
    accuracy: Array
    ece: Array
    ood: Mapping[str, Mapping[str, Array]]
    sums: Array
    ood_sums: Mapping[str, Array]

    def reliability(self, position: int) -> ReliabilityDiagram:
        """The diagram of what is accepted at `coverages[position]`, all seeds together."""
        count, confidence, correct = self.sums[:, position]
        return ReliabilityDiagram.from_sums(array(bin_edges(self.sums.shape[2])), confidence, correct, count)


def coverage_curves(
    evaluations: Sequence[Evaluation], coverages: Sequence[float] = DEFAULT_COVERAGES, *, bins: int = 15
) -> list[Curves]:
    """The `Curves` of each system; thresholds as in `summarize`, and the values equal to its estimates."""
    return [_system(group, coverages, bins) for group in by_system(evaluations).values()]


def _system(group: list[Evaluation], coverages: Sequence[float], bins: int) -> Curves:
    cuts = [thresholds(evaluation, coverages) for evaluation in group]
    inside = [_inside(evaluation.id, cut, bins) for evaluation, cut in zip(group, cuts)]
    accepted = np.stack([part[0][:, 0] for part in inside])
    outside = {name: _outside([(each.id, each.ood[name]) for each in group], cuts, bins) for name in group[0].ood}
    return Curves(
        group[0].system,
        tuple(evaluation.seed for evaluation in group),
        threshold_source(group[0]),
        np.array(coverages, np.float64),
        np.stack(cuts),
        accepted / group[0].id.total,
        accepted,
        np.stack([part[0][:, 1] for part in inside]),
        np.stack([part[0][:, 2] for part in inside]),
        {name: dict(zip(("accepted", *CURVE_MEASURES), values)) for name, (values, _) in outside.items()},
        np.sum([part[1] for part in inside], axis=0),
        {name: sums for name, (_, sums) in outside.items()},
    )


def _inside(outcome: Predictions, cuts: Array, bins: int) -> tuple[Array, Array]:
    """Accepted, accuracy and ECE (G, 3), and the sums (3, G, M) of the reliability diagram."""
    selective, index = accuracy_and_ece(outcome, bins), confidence_bins("confidence", outcome.confidence, bins)
    values, sums = [], []
    for block in _blocks(cuts, len(outcome)):
        kept = _kept(outcome, block)
        values.append(np.column_stack([kept.sum(1), selective.under(kept)]))
        parts = (kept, kept * outcome.confidence, kept * outcome.correct)
        sums.append(np.stack([bin_sums(index, part, bins) for part in parts]))
    return np.concatenate(values), np.concatenate(sums, axis=1)


def _outside(pairs: list[tuple[Predictions, Predictions]], cuts: list[Array], bins: int) -> tuple[Array, Array]:
    """Of one OOD set: how many inputs are accepted, then `CURVE_MEASURES`, (6, S, G); the counts per bin (G, M)."""
    values, sums = [], []
    for (inside, outside), cut in zip(pairs, cuts):
        pair = ConfidencePair.of(inside.confidence, outside.confidence, bins)
        blocks = _blocks(cut, len(inside) + len(outside))
        parts = [pair.histograms(_kept(inside, block), _kept(outside, block)) for block in blocks]
        masses = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
        accepted = masses[0].sum(1), masses[1].sum(1)
        totals = np.full(len(cut), inside.total, np.float64), np.full(len(cut), outside.total, np.float64)
        rates = detection_rates(*masses, *totals, few=is_few(*accepted))
        values.append(np.column_stack([accepted[1], rates]).T)
        sums.append(masses[1])
    return np.stack(values, axis=1), np.sum(sums, axis=0)


def _kept(outcome: Predictions, cuts: Array) -> Array:
    """The weights (G, N) with those of the rejected set to 0."""
    kept: Array = outcome.weights * (outcome.acceptance >= cuts[:, None])
    return kept


def _blocks(cuts: Array, width: int) -> list[Array]:
    """The thresholds in blocks whose masks stay within some tens of megabytes."""
    rows = max(1, _ENTRIES // width)
    return [cuts[start : start + rows] for start in range(0, len(cuts), rows)]
