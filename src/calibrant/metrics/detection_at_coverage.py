"""OOD detection behind a selector that rejects some inputs.

The threshold is set on the ID points, at a coverage, and holds for the OOD points too. Two questions differ: how well
does the confidence tell apart what is accepted, and how often is the whole system right, its rejections included?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import checks
from calibrant.metrics.functional import Array, Functional, array, bin_sums, divide, measure
from calibrant.metrics.inputs import scores
from calibrant.metrics.selection import Rule, threshold_rule
from calibrant.metrics.variation import confidence_bins, variation_under

LEAST_ACCEPTED = 30


@dataclass(frozen=True)
class DetectionAtCoverage:
    """OOD detection at a threshold: what is accepted of either kind, and how often ID and OOD are told apart.

    `probability` (and its bias-corrected twin) is NaN when fewer than 30 points of either kind are accepted.
    """

    threshold: float
    id_coverage: float
    ood_coverage: float
    accepted_id: int
    accepted_ood: int
    probability: float
    corrected_probability: float
    system_rate: float
    corrected_system_rate: float

    @property
    def defined(self) -> bool:
        """Whether enough points are accepted for `probability` to mean something."""
        return min(self.accepted_id, self.accepted_ood) >= LEAST_ACCEPTED


@measure
def selective_detection_probability(
    id_confidence: Any,
    ood_confidence: Any,
    id_acceptance: Any = None,
    ood_acceptance: Any = None,
    *,
    coverage: float,
    bins: int = 15,
    corrected: bool = False,
) -> Functional:
    """(1 + TV) / 2 between the confidences of the accepted ID and of the accepted OOD points.

    The confidences have shape (n,) and (k,), the acceptances too, by default the confidences themselves. NaN when fewer
    than 30 of either are accepted. What was rejected is left out, also the OOD points that were rejected rightly:
    `system_detection_rate` counts them.
    """
    case = _Case.of(id_confidence, ood_confidence, id_acceptance, ood_acceptance, coverage, bins)
    few = min(kept.sum() for kept in case.accepted(*case.ones())) < LEAST_ACCEPTED

    def under(id_weights: Array, ood_weights: Array) -> Array:
        kept = case.accepted(id_weights, ood_weights)
        p, q = (divide(mass, mass.sum(1, keepdims=True)) for mass in case.histograms(*kept))
        result = (1 + variation_under(p, q, kept[0].sum(1), kept[1].sum(1), corrected=corrected)) / 2
        return np.full_like(result, np.nan) if few else result

    return Functional(case.sizes, under, (0.5, 1.0))


@measure
def system_detection_rate(
    id_confidence: Any,
    ood_confidence: Any,
    id_acceptance: Any = None,
    ood_acceptance: Any = None,
    *,
    coverage: float,
    bins: int = 15,
    corrected: bool = False,
) -> Functional:
    """How often the whole system is right about ID or OOD, equally likely, when a rejection says "OOD".

    With p_m and q_m the shares of all ID and all OOD points that are accepted and fall into bin m, and the best verdict
    for each bin, the rate is 1/2 [1 - sum_m q_m + sum_m max(p_m, q_m)]: a rejected OOD point is a detection, a rejected
    ID point a false alarm, also where calling the rejected "ID" would score higher. With no rejections: (1 + TV) / 2.
    Arguments as of `selective_detection_probability`; defined for any number of accepted points.

    >>> system_detection_rate([0.9, 0.9], [0.9, 0.2], coverage=1.0)
    0.75
    """
    case = _Case.of(id_confidence, ood_confidence, id_acceptance, ood_acceptance, coverage, bins)

    def under(id_weights: Array, ood_weights: Array) -> Array:
        masses = case.histograms(*case.accepted(id_weights, ood_weights))
        n, k = id_weights.sum(1), ood_weights.sum(1)
        p, q = masses[0] / n[:, None], masses[1] / k[:, None]
        # sum max(p, q) = (sum p + sum q) / 2 + sum |p - q| / 2, and only the last term is biased
        shift: Array = (p.sum(1) - q.sum(1)) / 4
        return 0.5 + shift + variation_under(p, q, n, k, corrected=corrected) / 2

    return Functional(case.sizes, under)


def ood_detection_at_coverage(
    id_confidence: Any,
    ood_confidence: Any,
    id_acceptance: Any = None,
    ood_acceptance: Any = None,
    *,
    coverage: float,
    bins: int = 15,
) -> DetectionAtCoverage:
    """Both measures at one threshold, with the counts behind them; arguments as of the two measures.

    >>> result = ood_detection_at_coverage([0.9, 0.8, 0.7, 0.6], [0.85, 0.2, 0.1], coverage=0.5)
    >>> result.accepted_id, result.accepted_ood, result.defined, result.system_rate
    (2, 1, False, 0.75)
    """
    case = _Case.of(id_confidence, ood_confidence, id_acceptance, ood_acceptance, coverage, bins)
    kept_id, kept_ood = (int(kept.sum()) for kept in case.accepted(*case.ones()))

    def both(build: Any) -> tuple[float, float]:
        arguments = (id_confidence, ood_confidence, id_acceptance, ood_acceptance)
        plain, corrected = (build(*arguments, coverage=coverage, bins=bins, corrected=c) for c in (False, True))
        return plain, corrected

    return DetectionAtCoverage(
        float(case.rule(case.ones()[0])[0]),
        kept_id / case.sizes[0],
        kept_ood / case.sizes[1],
        kept_id,
        kept_ood,
        *both(selective_detection_probability),
        *both(system_detection_rate),
    )


@dataclass(frozen=True)
class _Case:
    """The checked points: bins of their confidences, their acceptances, and the rule for the threshold."""

    id_bins: Any
    ood_bins: Any
    id_acceptance: Array
    ood_acceptance: Array
    rule: Rule
    bins: int

    @classmethod
    def of(cls, id_confidence: Any, ood_confidence: Any, ids: Any, oods: Any, coverage: float, bins: int) -> _Case:
        if (ids is None) != (oods is None):
            missing = "id_acceptance" if ids is None else "ood_acceptance"
            raise ValueError(f"{missing} is missing: give the acceptance of both samples or of neither")
        first = confidence_bins("id_confidence", id_confidence, bins)
        second = confidence_bins("ood_confidence", ood_confidence, bins)
        inside = _order("id_acceptance", ids, "id_confidence", id_confidence)
        outside = _order("ood_acceptance", oods, "ood_confidence", ood_confidence)
        return cls(first, second, inside, outside, threshold_rule(inside, coverage), bins)

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self.id_acceptance), len(self.ood_acceptance)

    def ones(self) -> tuple[Array, Array]:
        return np.ones((1, self.sizes[0])), np.ones((1, self.sizes[1]))

    def accepted(self, id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        """The weights with those of the rejected set to 0."""
        threshold = self.rule(id_weights)[:, None]
        return id_weights * (self.id_acceptance >= threshold), ood_weights * (self.ood_acceptance >= threshold)

    def histograms(self, id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        return bin_sums(self.id_bins, id_weights, self.bins), bin_sums(self.ood_bins, ood_weights, self.bins)


def _order(name: str, acceptance: Any, other: str, confidence: Any) -> Array:
    level = checks.tensor(other, confidence)
    if acceptance is None:
        return array(level)
    value = scores(name, acceptance)
    checks.same_length(name, checks.tensor(name, value), other, level)
    return value
