"""The measures of a system at a threshold, as functionals of how much each input counts.

They are those of `calibrant.metrics`, evaluated on the accepted inputs. The threshold is held fixed, as in a system
that is deployed: resampling the test data does not move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibrant.evaluation.outcome import Outcome
from calibrant.metrics import accuracy, aurc, auroc, expected_calibration_error, fpr_at_tpr
from calibrant.metrics.detection_at_coverage import LEAST_ACCEPTED
from calibrant.metrics.functional import Array, Functional, Indices, bin_sums, divide, functional_of
from calibrant.metrics.resampling import seed_shares
from calibrant.metrics.variation import confidence_bins, variation_under

ID_MEASURES = ("coverage", "accuracy", "ece", "aurc")
OOD_MEASURES = (
    "ood_acceptance",
    "detection",
    "detection_corrected",
    "system_rate",
    "system_rate_corrected",
    "auroc",
    "fpr95",
)


@dataclass(frozen=True)
class IdCase:
    """Accuracy and ECE of the accepted ID inputs, (R, 2), under weights (R, n) that are 0 for the rejected."""

    right: Functional
    error: Functional

    @classmethod
    def of(cls, outcome: Outcome, bins: int) -> IdCase:
        """Prepare one data set."""
        error = functional_of(expected_calibration_error, outcome.confidence, outcome.correct, bins=bins)
        return cls(functional_of(accuracy, outcome.correct), error)

    def values(self, kept: Array) -> Array:
        """One row per row of weights."""
        return np.stack([self.right.under(kept), self.error.under(kept)], axis=1)


@dataclass(frozen=True)
class OodCase:
    """OOD detection among the accepted and by the whole system, from histograms of the accepted confidences."""

    id_bins: Indices
    ood_bins: Indices
    bins: int

    @classmethod
    def of(cls, inside: Outcome, outside: Outcome, bins: int) -> OodCase:
        """Prepare a pair of data sets."""
        id_bins = confidence_bins("id_confidence", inside.confidence, bins)
        return cls(id_bins, confidence_bins("ood_confidence", outside.confidence, bins), bins)

    def values(self, totals: tuple[Array, Array], kept: tuple[Array, Array]) -> Array:
        """The first five of `OOD_MEASURES`, (R, 5).

        `kept` are weights (R, n) and (R, k), 0 for the rejected; `totals` (R,) their sums before anything was rejected.
        The values are those of `metrics.ood_detection_probability` of the accepted and `metrics.system_detection_rate`,
        which all read the same two histograms.
        """
        masses = bin_sums(self.id_bins, kept[0], self.bins), bin_sums(self.ood_bins, kept[1], self.bins)
        n, k = masses[0].sum(1), masses[1].sum(1)
        among = divide(masses[0], n[:, None]), divide(masses[1], k[:, None])
        whole = masses[0] / totals[0][:, None], masses[1] / totals[1][:, None]
        shift = 0.5 + (n / totals[0] - k / totals[1]) / 4
        detection = [(1 + variation_under(*among, n, k, corrected=c)) / 2 for c in (False, True)]
        system = [shift + variation_under(*whole, *totals, corrected=c) / 2 for c in (False, True)]
        return np.stack([k / totals[1], *detection, *system], axis=1)


def id_measures(outcome: Outcome, threshold: float, bins: int) -> Functional:
    """`ID_MEASURES` at `threshold`: a functional with values (R, 4)."""
    case, order = IdCase.of(outcome, bins), functional_of(aurc, outcome.acceptance, outcome.correct)
    accepted = outcome.acceptance >= threshold

    def under(weights: Array) -> Array:
        kept = weights * accepted
        coverage = kept.sum(1) / weights.sum(1)
        return np.column_stack([coverage, case.values(kept), order.under(weights)])

    return Functional((len(outcome),), under)


def ood_measures(inside: Outcome, outside: Outcome, threshold: float, bins: int) -> Functional:
    """`OOD_MEASURES` at `threshold`: values (R, 7), NaN where fewer than 30 of either are accepted."""
    case = OodCase.of(inside, outside, bins)
    masks = inside.acceptance >= threshold, outside.acceptance >= threshold
    few = is_few(float(masks[0] @ inside.weights), float(masks[1] @ outside.weights))
    orders = () if few else (auroc, fpr_at_tpr)
    ranking = [functional_of(order, inside.ood_score[masks[0]], outside.ood_score[masks[1]]) for order in orders]

    def under(id_weights: Array, ood_weights: Array) -> Array:
        values = np.full((len(id_weights), len(OOD_MEASURES)), np.nan)
        totals = id_weights.sum(1), ood_weights.sum(1)
        values[:, :5] = case.values(totals, (id_weights * masks[0], ood_weights * masks[1]))
        if few:
            values[:, 1:3] = np.nan
        with np.errstate(invalid="ignore"):  # a resample in which nothing is accepted gives NaN, and is left out
            for column, order in enumerate(ranking, start=5):
                values[:, column] = order.under(id_weights[:, masks[0]], ood_weights[:, masks[1]])
        return values

    return Functional((len(inside), len(outside)), under)


def is_few(accepted_id: float, accepted_ood: float) -> bool:
    """Whether too few are accepted for the accepted ones to be compared."""
    return min(accepted_id, accepted_ood) < LEAST_ACCEPTED


def over_seeds(functionals: Sequence[Functional]) -> Functional:
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
