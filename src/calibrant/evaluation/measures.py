"""The measures of a system at a threshold, as functionals of how much each input counts.

They are those of `calibrant.metrics`, evaluated on the accepted inputs. The threshold is held fixed, as in a system
that is deployed: resampling the test data does not move it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.metrics import accuracy, aurc, auroc, expected_calibration_error, fpr_at_tpr
from calibrant.metrics.detection_at_coverage import detection_rates, is_few
from calibrant.metrics.functional import Array, Functional, functional_of
from calibrant.metrics.resampling import seed_shares
from calibrant.metrics.variation import ConfidencePair
from calibrant.predictions import Predictions

ID_MEASURES = ("coverage", "accuracy", "ece", "aurc")
CURVE_MEASURES = ("ood_acceptance", "detection", "detection_corrected", "system_rate", "system_rate_corrected")
OOD_MEASURES = (*CURVE_MEASURES, "auroc", "fpr95")


def accuracy_and_ece(outcome: Predictions, bins: int) -> Functional:
    """Accuracy and ECE of the accepted ID inputs, (R, 2), under weights (R, n) that are 0 for the rejected."""
    right = functional_of(accuracy, outcome.correct)
    error = functional_of(expected_calibration_error, outcome.confidence, outcome.correct, bins=bins)
    return Functional((len(outcome),), lambda kept: np.stack([right.under(kept), error.under(kept)], axis=1))


def id_measures(outcome: Predictions, threshold: float, bins: int) -> Functional:
    """`ID_MEASURES` at `threshold`: a functional with values (R, 4)."""
    selective = accuracy_and_ece(outcome, bins)
    order = functional_of(aurc, outcome.acceptance, outcome.correct)
    accepted = outcome.acceptance >= threshold

    def under(weights: Array) -> Array:
        kept = weights * accepted
        coverage = kept.sum(1) / weights.sum(1)
        return np.column_stack([coverage, selective.under(kept), order.under(weights)])

    return Functional((len(outcome),), under)


def ood_measures(inside: Predictions, outside: Predictions, threshold: float, bins: int) -> Functional:
    """`OOD_MEASURES` at `threshold`: values (R, 7), NaN where fewer than 30 of either are accepted."""
    pair = ConfidencePair.of(inside.confidence, outside.confidence, bins)
    masks = inside.acceptance >= threshold, outside.acceptance >= threshold
    few = is_few(masks[0] @ inside.weights, masks[1] @ outside.weights)
    orders = () if few else (auroc, fpr_at_tpr)
    ranking = [functional_of(order, inside.ood_score[masks[0]], outside.ood_score[masks[1]]) for order in orders]

    def under(id_weights: Array, ood_weights: Array) -> Array:
        values = np.full((len(id_weights), len(OOD_MEASURES)), np.nan)
        masses = pair.histograms(id_weights * masks[0], ood_weights * masks[1])
        values[:, :5] = detection_rates(*masses, id_weights.sum(1), ood_weights.sum(1), few=few)
        with np.errstate(invalid="ignore"):  # a resample in which nothing is accepted gives NaN, and is left out
            for column, order in enumerate(ranking, start=5):
                values[:, column] = order.under(id_weights[:, masks[0]], ood_weights[:, masks[1]])
        return values

    return Functional((len(inside), len(outside)), under)


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
