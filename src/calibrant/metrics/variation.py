"""Total variation between two samples of confidences, and the probability of detection that it allows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import checks
from calibrant.metrics.bins import bin_index, checked_bins
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, Indices, Terms, bin_sums, divide, indices, weighted


@weighted
def total_variation(id_confidence: Any, ood_confidence: Any, bins: int = 15, *, corrected: bool = False) -> Functional:
    """TV = 1/2 sum_m |p_m - q_m| between the histograms p of the ID and q of the OOD confidences, in [0, 1].

    `id_confidence` (n,) and `ood_confidence` (k,) in [0, 1]; bins (a, b], the first with 0. The histogram estimate is
    biased upwards: two samples of one distribution differ by chance. `corrected=True` subtracts that excess (see
    `variation_under`); the result may then lie slightly below 0, as an unbiased estimate of 0 must.

    >>> total_variation([0.95, 0.99, 0.2], [0.1, 0.15, 0.98])
    0.333
    """
    pair = ConfidencePair.of(id_confidence, ood_confidence, bins)

    def under(*weights: Array) -> Array:
        return histogram_variation(*pair.histograms(*weights), corrected=corrected)

    return Functional(pair.sizes, under, terms=lambda *base: lambda *weights: [pair.terms(*weights)])


@measure(
    "OOD detection", "higher", "percent", "(1 + TV) / 2 between accepted ID and accepted OOD inputs",
    of="accepted ID and OOD", name="detection", short="detected", position=30,
)  # fmt: skip
@measure(
    "corrected", "higher", "percent", "OOD detection with the bias of its histograms taken out",
    of="accepted ID and OOD", name="detection_corrected", options={"corrected": True}, show="markdown", position=31,
)  # fmt: skip
@weighted
def ood_detection_probability(
    id_confidence: Any, ood_confidence: Any, bins: int = 15, *, corrected: bool = False
) -> Functional:
    """(1 + TV) / 2: how often the best detector by the confidence's bin is right, ID and OOD being equally likely.

    >>> ood_detection_probability([0.95, 0.99, 0.9], [0.1, 0.3, 0.2])
    1.0
    """
    pair = ConfidencePair.of(id_confidence, ood_confidence, bins)

    def under(*weights: Array) -> Array:
        return detection_probability(*pair.histograms(*weights), corrected=corrected)

    def terms(*weights: Array) -> list[Terms]:
        smooth, parts = pair.terms(*weights)
        return [((1 + smooth) / 2, parts / 2)]

    return Functional(pair.sizes, under, (0.5, 1.0), terms=lambda *base: terms)


def detection_probability(id_mass: Array, ood_mass: Array, *, corrected: bool) -> Array:
    """(1 + TV) / 2 between histograms (R, M), (R,); NaN where one is empty."""
    return (1 + histogram_variation(id_mass, ood_mass, corrected=corrected)) / 2


@dataclass(frozen=True)
class ConfidencePair:
    """The confidences of an ID sample (n,) and an OOD sample (k,), checked and binned."""

    id_bins: Indices
    ood_bins: Indices
    bins: int

    @classmethod
    def of(cls, id_confidence: Any, ood_confidence: Any, bins: int) -> ConfidencePair:
        """Check and bin."""
        id_bins = confidence_bins("id_confidence", id_confidence, bins)
        return cls(id_bins, confidence_bins("ood_confidence", ood_confidence, bins), bins)

    @property
    def sizes(self) -> tuple[int, int]:
        """(n, k)."""
        return len(self.id_bins), len(self.ood_bins)

    def histograms(self, id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        """How much weighs in each of M bins, (R, M) twice, under weights (R, n) and (R, k)."""
        return bin_sums(self.id_bins, id_weights, self.bins), bin_sums(self.ood_bins, ood_weights, self.bins)

    def terms(self, id_weights: Array, ood_weights: Array) -> Terms:
        """The terms of the total variation: (p_m - q_m) / 2."""
        p, q = (divide(mass, mass.sum(1)[:, None]) for mass in self.histograms(id_weights, ood_weights))
        return np.zeros(len(p)), ((p - q) / 2)[:, :, None]


def confidence_bins(name: str, confidence: Any, bins: int) -> Indices:
    """The bin of each of the checked confidences."""
    return indices(bin_index(checks.measured.unit_interval(name, confidence), checked_bins(bins)))


def histogram_variation(id_mass: Array, ood_mass: Array, *, corrected: bool) -> Array:
    """The total variation (R,) between histograms (R, M) of what weighs in each bin; NaN where one is empty."""
    n, k = id_mass.sum(1), ood_mass.sum(1)
    p, q = divide(id_mass, n[:, None]), divide(ood_mass, k[:, None])
    return variation_under(p, q, n, k, corrected=corrected)


def variation_under(p: Array, q: Array, n: Array, k: Array, *, corrected: bool) -> Array:
    """1/2 sum_m |p_m - q_m| for cell frequencies (R, M) of samples of n and k points (R,), bias-corrected if asked.

    d_m = p_m - q_m has variance s_m^2 = p_m (1 - p_m) / n + q_m (1 - q_m) / k (estimated with n - 1 and k - 1), which
    lifts the mean of |d_m| above its true value by b(d, s) = E|d + s Z| - |d|, Z standard normal: 0.8 s at d = 0,
    nothing for d >> s. The true d is unknown, and the observed one is too large (E d_m^2 = true + s_m^2), so all are
    shrunk by the factor t, t^2 = max(0, 1 - sum s_m^2 / sum d_m^2), and 1/2 sum_m b(t d_m, s_m) is subtracted.
    """
    difference = np.abs(p - q)
    plain: Array = np.minimum(difference.sum(1) / 2, 1)  # rounding can lift the sum above it
    if not corrected:
        return plain
    noise = p * (1 - p) / np.maximum(n - 1, 1)[:, None] + q * (1 - q) / np.maximum(k - 1, 1)[:, None]
    signal = np.maximum((difference**2).sum(1), np.finfo(float).tiny)
    shrink = np.sqrt(np.maximum(1 - noise.sum(1) / signal, 0))
    excess: Array = _folded_excess(shrink[:, None] * difference, np.sqrt(noise)).sum(1) / 2
    return plain - excess


def _folded_excess(mean: Array, std: Array) -> Array:
    """E|mean + std Z| - |mean| = 2 (std phi(mean / std) - mean Phi(-mean / std)) for mean >= 0."""
    z = np.divide(mean, std, out=np.zeros_like(mean), where=std > 0)
    tail, near = np.zeros_like(z), (std > 0) & (z < 9)  # where it is 0 in float64, it need not be computed
    tail[near] = _normal_below(-z[near])
    excess = 2 * (std * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) - mean * tail)
    return np.where(std > 0, excess, 0)


def _normal_below(z: Array) -> Array:
    """Phi(z) of z (n,), the standard normal distribution function."""
    return (1 + np.array([math.erf(value) for value in (z * math.sqrt(0.5)).tolist()])) * 0.5
