"""The records of the study `posteriors`: few measures, so that many systems and seeds stay light."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from calibrant.evaluation import Evaluation, threshold_source, thresholds
from calibrant.evaluation.measures import Prepared
from calibrant.metrics import brier_score, negative_log_likelihood
from calibrant.metrics.declarations import catalogue
from calibrant.metrics.functional import Array, functional_of
from calibrant.predictions import Predictions
from calibrant.studies.measuring import entry, resamples, some_draws

PROPER = {"nll": negative_log_likelihood, "brier": brier_score}
INSIDE = ("accuracy", "ece", "aurc")
AGAINST, STREAM = ("auroc", "fpr95"), ("ood_acceptance", "wrong_at_10", "wrong_at_50")
DRAWN = {"accuracy", "ece"}  # what keeps its draws; with `coverages`, the second
DRAWN_AGAINST = {"nll", "ece", "aurc", "auroc", "wrong_at_10"}
EVERYTHING = -float("inf")  # the threshold that accepts it


def measure_posterior(
    evaluation: Evaluation, probabilities: Any, coverages: Sequence[float], *, bins: int, count: int
) -> dict[str, Any]:
    """Proper scores, accuracy, ECE and AURC of all ID inputs; with `coverages` also what becomes of the OOD sets.

    `probabilities` (N, C) are those of the ID inputs.
    """
    inside, wanted = evaluation.id, sorted(coverages, reverse=True)
    weights = resamples(len(inside), 0, count)
    measures = {
        name: entry(functional_of(function, probabilities, inside.labels).under(weights))
        for name, function in PROPER.items()
    }
    measures |= _entries(INSIDE, [inside], [weights], EVERYTHING, bins)
    if wanted:
        measures |= _against(AGAINST, evaluation, count, EVERYTHING, bins)
    at = [_at(evaluation, 1.0, EVERYTHING, measures, DRAWN_AGAINST if wanted else DRAWN)]
    for level, cut in zip(wanted, thresholds(evaluation, wanted) if wanted else ()):
        below = _entries(("coverage",), [inside], [weights], float(cut), bins)
        below |= _against(STREAM, evaluation, count, float(cut), bins)
        at.append(_at(evaluation, level, float(cut), below, DRAWN_AGAINST))
    sizes = {"test": len(inside), **{name: len(part) for name, part in evaluation.ood.items()}}
    return {"threshold_from": threshold_source(evaluation), "sizes": sizes, "at": at}


def _at(
    evaluation: Evaluation, wanted: float, cut: float, measures: Mapping[str, Any], drawn: Set[str]
) -> dict[str, Any]:
    kept = some_draws(measures, drawn)
    parts = {"test": evaluation.id, **evaluation.ood}
    accepted = {name: int((part.acceptance >= cut).sum()) for name, part in parts.items()}
    threshold = None if cut == EVERYTHING else round(cut, 6)
    return {"wanted": wanted, "threshold": threshold, "accepted": accepted, "measures": kept}


def _against(names: Sequence[str], evaluation: Evaluation, count: int, cut: float, bins: int) -> dict[str, Any]:
    """Measures against every OOD set."""
    inside, found = resamples(len(evaluation.id), 0, count), dict[str, Any]()
    for place, (ood, part) in enumerate(evaluation.ood.items()):
        weights = [inside, resamples(len(part), 1 + place, count)]
        some = _entries(names, [evaluation.id, part], weights, cut, bins)
        found |= {f"{name}:{ood}": value for name, value in some.items()}
    return found


def _entries(
    names: Sequence[str], outcomes: Sequence[Predictions], weights: Sequence[Array], cut: float, bins: int
) -> dict[str, Any]:
    known = [catalogue()[name] for name in names]
    columns = Prepared(known, outcomes, bins).at(cut).under(*weights).T
    return {name: entry(column) for name, column in zip(names, columns)}
