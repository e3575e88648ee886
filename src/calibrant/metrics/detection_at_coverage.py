"""OOD detection behind a selector that rejects some inputs.

The threshold is set on the ID points, at a coverage, and holds for the OOD points too. Two questions differ: how well
does the confidence tell apart what is accepted, and how often is the whole system right, its rejections included?
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError, checks
from calibrant.metrics.arguments import acceptance_or_confidence
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, Terms, array, weighted
from calibrant.metrics.selection import Rule, threshold_rule
from calibrant.metrics.variation import ConfidencePair, detection_probability, variation_under

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
        return not is_few(self.accepted_id, self.accepted_ood)


@weighted
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
    few = is_few(*(mass.sum() for mass in case.accepted(*case.ones())))

    def under(*weights: Array) -> Array:
        return np.where(few, np.nan, detection_probability(*case.accepted(*weights), corrected=corrected))

    return Functional(case.pair.sizes, under, (0.5, 1.0))


@weighted
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
        totals = id_weights.sum(1), ood_weights.sum(1)
        return system_rate(*case.accepted(id_weights, ood_weights), *totals, corrected=corrected)

    return Functional(case.pair.sizes, under)


@measure(
    "whole system", "higher", "percent", "OOD detection where a rejection counts as one",
    of="all ID and OOD", name="system_rate", show="slider", position=32,
)  # fmt: skip
@measure(
    "whole system, corrected", "higher", "percent", "the same with the bias of its histograms taken out",
    of="all ID and OOD", name="system_rate_corrected", options={"corrected": True}, show="page", position=33,
)  # fmt: skip
@weighted
def detection_with_rejections(
    id_confidence: Any,
    ood_confidence: Any,
    id_accepted: Any,
    ood_accepted: Any,
    bins: int = 15,
    *,
    corrected: bool = False,
) -> Functional:
    """`system_detection_rate` where it is known which points are accepted, `id_accepted` (n,) and `ood_accepted` (k,).

    >>> detection_with_rejections([0.9, 0.9], [0.9, 0.2], [1, 1], [1, 0])
    0.75
    """
    pair = ConfidencePair.of(id_confidence, ood_confidence, bins)
    inside, outside = (array(checks.values("accepted", flags)) for flags in (id_accepted, ood_accepted))

    def under(id_weights: Array, ood_weights: Array) -> Array:
        masses = pair.histograms(id_weights * inside, ood_weights * outside)
        return system_rate(*masses, id_weights.sum(1), ood_weights.sum(1), corrected=corrected)

    def terms(id_weights: Array, ood_weights: Array) -> list[Terms]:
        masses = pair.histograms(id_weights * inside, ood_weights * outside)
        p, q = masses[0] / id_weights.sum(1)[:, None], masses[1] / ood_weights.sum(1)[:, None]
        return [(0.5 + (p - q).sum(1) / 4, ((p - q) / 4)[:, :, None])]

    return Functional(pair.sizes, under, terms=lambda *base: terms)


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
    ones, masses = case.ones(), case.accepted(*case.ones())
    kept_id, kept_ood = (int(mass.sum()) for mass in masses)
    totals = (weights.sum(1) for weights in ones)
    ood_coverage, *rates = detection_rates(*masses, *totals, few=is_few(kept_id, kept_ood))[0].tolist()
    threshold = float(case.rule(ones[0])[0, 0])
    return DetectionAtCoverage(threshold, kept_id / ones[0].size, ood_coverage, kept_id, kept_ood, *rates)


def is_few(accepted_id: Array | float, accepted_ood: Array | float) -> NDArray[np.bool_]:
    """Whether fewer than 30 of either kind are accepted, too few to be compared; of two numbers or of arrays (R,)."""
    return np.asarray(np.minimum(accepted_id, accepted_ood) < LEAST_ACCEPTED)


def system_rate(id_mass: Array, ood_mass: Array, n: Array, k: Array, *, corrected: bool) -> Array:
    """`system_detection_rate` (R,) from histograms (R, M) of the accepted and the totals n and k (R,) of all points.

    sum max(p, q) = (sum p + sum q) / 2 + sum |p - q| / 2, and only the last term is biased.
    """
    variation = variation_under(id_mass / n[:, None], ood_mass / k[:, None], n, k, corrected=corrected)
    shift: Array = (id_mass.sum(1) / n - ood_mass.sum(1) / k) / 4
    return 0.5 + shift + variation / 2


def detection_rates(id_mass: Array, ood_mass: Array, n: Array, k: Array, *, few: NDArray[np.bool_]) -> Array:
    """OOD coverage, detection probability of the accepted and rate of the system, the last two plain and corrected.

    The result is (R, 5), NaN for the detection probability where `few`, one or (R,), says so (see `is_few`); the other
    arguments are those of `system_rate`.
    """
    among = [detection_probability(id_mass, ood_mass, corrected=c) for c in (False, True)]
    system = [system_rate(id_mass, ood_mass, n, k, corrected=c) for c in (False, True)]
    return np.stack([ood_mass.sum(1) / k, *(np.where(few, np.nan, rate) for rate in among), *system], axis=1)


@dataclass(frozen=True)
class _Case:
    """The checked points: bins of their confidences, their acceptances, and the rule for the threshold."""

    pair: ConfidencePair
    id_acceptance: Array
    ood_acceptance: Array
    rule: Rule

    @classmethod
    def of(cls, id_confidence: Any, ood_confidence: Any, ids: Any, oods: Any, coverage: float, bins: int) -> _Case:
        if (ids is None) != (oods is None):
            missing = "id_acceptance" if ids is None else "ood_acceptance"
            raise InputError(f"{missing} is missing: give the acceptance of both samples or of neither")
        pair = ConfidencePair.of(id_confidence, ood_confidence, bins)
        inside = acceptance_or_confidence(ids, id_confidence, "id_")
        outside = acceptance_or_confidence(oods, ood_confidence, "ood_")
        return cls(pair, inside, outside, threshold_rule(inside, [coverage]))

    def ones(self) -> tuple[Array, Array]:
        return np.ones((1, self.pair.sizes[0])), np.ones((1, self.pair.sizes[1]))

    def accepted(self, id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        """Histograms (R, M) of the confidences of the accepted."""
        threshold = self.rule(id_weights)
        return self.pair.histograms(
            id_weights * (self.id_acceptance >= threshold), ood_weights * (self.ood_acceptance >= threshold)
        )
