"""A trial's outputs reduced to numbers: a record of a few kilobytes, from which tables and figures are made.

Every measure comes with its value under R resamples of the inputs. The resamples are the same for all records, so the
records of two systems can be compared input by input later on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.evaluation import Evaluation, threshold_source, thresholds
from calibrant.evaluation.measures import Prepared
from calibrant.evaluation.summary import CALLED
from calibrant.metrics import auroc, fpr_at_tpr, reliability_diagram
from calibrant.metrics.declarations import DeclaredMeasure, catalogue
from calibrant.metrics.functional import Array, functional_of
from calibrant.metrics.resampling import resampling_counts
from calibrant.metrics.variation import confidence_bins
from calibrant.predictions import Predictions

DIGITS = 5


def resamples(size: int, sample: int, count: int) -> Array:
    """How often each of `size` inputs is drawn: (1 + count, size), the first row being the data themselves."""
    return _counts(size, sample, count).astype(np.float64)


@lru_cache(maxsize=16)
def _counts(size: int, sample: int, count: int) -> NDArray[np.uint8]:
    counts = resampling_counts(np.random.default_rng((sample, size)), count, size)
    return np.concatenate([np.ones((1, size)), counts]).astype(np.uint8)


def measure(evaluation: Evaluation, coverages: Sequence[float], *, bins: int, count: int) -> dict[str, Any]:
    """The measures of `evaluation` at every wanted coverage, and the counts behind its diagrams."""
    wanted = sorted({1.0, *coverages}, reverse=True)
    cuts = thresholds(evaluation, wanted)
    return {
        "threshold_from": threshold_source(evaluation),
        "sizes": {"test": len(evaluation.id), **{name: len(one) for name, one in evaluation.ood.items()}},
        "reliability": _diagram(evaluation.id, bins),
        "histograms": {
            name: np.bincount(confidence_bins("confidence", one.confidence, bins), minlength=bins).tolist()
            for name, one in {"test": evaluation.id, **evaluation.ood}.items()
        },
        "at": [_at(evaluation, level, float(cut), bins, count) for level, cut in zip(wanted, cuts)],
    }


def _diagram(outcome: Predictions, bins: int) -> dict[str, Any]:
    diagram = reliability_diagram(outcome.confidence, outcome.correct, bins)
    numbers = {"confidence": diagram.confidence, "accuracy": diagram.accuracy}
    return {"count": diagram.count.tolist(), **{name: [_number(v) for v in value] for name, value in numbers.items()}}


def _at(evaluation: Evaluation, wanted: float, cut: float, bins: int, count: int) -> dict[str, Any]:
    """All declared measures at one threshold; draws for all sets at coverage 1, below it for the first OOD set only.

    A measure that does not depend on the threshold is kept at coverage 1.
    """
    known = [measure for measure in catalogue().values() if wanted == 1 or measure.at_coverage]
    inside = _scored(evaluation.id)
    weights = resamples(len(inside), 0, count)
    accepted = {"test": _accepted(inside, cut)}
    measures = _entries([measure for measure in known if not measure.ood], [inside], [weights], cut, bins)
    for position, (name, part) in enumerate(evaluation.ood.items()):
        outside = _scored(part)
        rows = slice(None) if wanted == 1 or position == 0 else slice(1)
        other = resamples(len(outside), 1 + position, count)
        accepted[name] = _accepted(outside, cut)
        chosen = [measure for measure in known if measure.ood]
        found = _entries(chosen, [inside, outside], [weights[rows], other[rows]], cut, bins)
        measures.update({f"{label}:{name}": value for label, value in found.items()})
    return {"wanted": wanted, "threshold": _number(cut), "accepted": accepted, "measures": measures}


def _scored(outcome: Predictions) -> Predictions:
    """`outcome` with the confidence as its OOD score, whatever the system uses."""
    return replace(outcome, ood_score=1 - outcome.confidence)


def _accepted(outcome: Predictions, cut: float) -> int:
    return int((outcome.acceptance >= cut).sum())


def _entries(
    measures: Sequence[DeclaredMeasure],
    outcomes: Sequence[Predictions],
    weights: Sequence[Array],
    cut: float,
    bins: int,
) -> dict[str, Any]:
    """The entries of `measures` by name; those that are called once per resample have the draws of the first ones."""
    found: dict[str, Any] = {}
    for chosen, rows in ((True, slice(None)), (False, slice(1 + CALLED))):
        some = [measure for measure in measures if measure.weighted == chosen]
        if some:
            columns = Prepared(some, outcomes, bins).at(cut).under(*(part[rows] for part in weights)).T
            found |= {measure.name: entry(column) for measure, column in zip(some, columns)}
    return {measure.name: found[measure.name] for measure in measures}


def detector(id_score: Any, ood_score: Any, name: str, sample: int, count: int) -> dict[str, Any]:
    """AUROC and FPR95 of an OOD score against the set `name`, by measure."""
    weights = resamples(len(id_score), 0, count), resamples(len(ood_score), sample, count)
    return {
        f"{label}:{name}": entry(functional_of(function, id_score, ood_score).under(*weights))
        for label, function in (("auroc", auroc), ("fpr95", fpr_at_tpr))
    }


def detectors(predictions: Mapping[str, Predictions], count: int) -> dict[str, Any]:
    """AUROC and FPR95 of every score in `predictions`, against every OOD set."""
    scores = {name: part.scores for name, part in predictions.items() if name != "validation"}
    inside = scores.pop("test")
    return {
        score: {
            key: value
            for position, (ood, outside) in enumerate(scores.items())
            for key, value in detector(inside[score], outside[score], ood, 1 + position, count).items()
        }
        for score in inside
    }


def lightened(content: dict[str, Any], drawn: Collection[str] | None) -> dict[str, Any]:
    """`content` of a record whose measures keep their draws only if they are among `drawn`, its OOD scores none.

    None keeps all.
    """
    if drawn is None:
        return content
    at = [{**one, "measures": some_draws(one["measures"], drawn)} for one in content["at"]]
    scores = {name: some_draws(measures, ()) for name, measures in content.get("detectors", {}).items()}
    return {**content, "at": at, **({"detectors": scores} if scores else {})}


def some_draws(measures: Mapping[str, Any], drawn: Collection[str]) -> dict[str, Any]:
    """`measures` without the draws of those that are not `drawn`, whatever the OOD set."""
    return {
        name: found if name.partition(":")[0] in drawn else {**found, "draws": []} for name, found in measures.items()
    }


def entry(values: Array) -> dict[str, Any]:
    """The first of `values` and, in units of 1e-5, the others, its draws; None where undefined or beyond 32 bits."""
    scale = 10**DIGITS
    kept = [round(float(v) * scale) if abs(v) * scale < 2**31 - 1 else None for v in values[1:]]
    return {"value": _number(values[0]), "draws": kept}


def _number(value: float) -> float | None:
    return round(float(value), DIGITS + 1) if np.isfinite(value) else None
