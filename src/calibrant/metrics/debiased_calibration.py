"""The root mean squared calibration error without the part that chance adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from calibrant.metrics.arguments import confidence_and_correct
from calibrant.metrics.calibration import Binning, binner
from calibrant.metrics.declarations import measure
from calibrant.metrics.few_errors import error_reach
from calibrant.metrics.functional import Array, Functional, Indices, Terms, array, bin_sums, divide, weighted


@measure(
    "RMS CE", "lower", "percent", "debiased root mean squared calibration error of the accepted ID inputs, equal mass",
    name="rms_calibration_error", show="page", position=62,
)  # fmt: skip
@weighted
def debiased_calibration_error(
    confidence: Any, correct: Any, bins: int = 15, *, binning: Binning = "mass"
) -> Functional:
    """The root of the debiased squared calibration error (Kumar, Liang & Ma, NeurIPS 2019), with the sign of what is
    under it:

        E^2 = sum_m n_m / n (g_m^2 - s_m^2 / n_m)

    g_m is the mean of the residuals c_i - r_i of the n_m points in bin m, and s_m^2 their variance, divided by n_m - 1.
    The mean square of a bin's gap exceeds its true square by just that variance, so E^2 is unbiased for the binned
    population error sum_m p_m gap_m^2, whatever n; where it is 0, half of the estimates are negative. Where a bin has
    one confidence only, s_m^2 is the variance of c, as in the paper. A bin with a single point tells nothing and is
    left out. `confidence` (n,) in [0, 1], `correct` (n,); bins as in `reliability_diagram`, by default of equal mass.

    When a share delta of the outcomes changes, the gaps change by h_m with sum_m p_m |h_m| <= delta and |h_m| <= 1, so
    the root changes by at most

        sqrt(sum_m p_m h_m^2) <= sqrt(delta max_m |h_m|) <= sqrt(delta min(1, delta / min_m p_m))

    Where few answers are wrong, or few are right, the interval is extended by that, with the delta that Wilson's
    interval of the accuracy allows (`calibrant.metrics.few_errors`).

    >>> debiased_calibration_error([0.9] * 10, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0], bins=1)
    0.3636
    >>> debiased_calibration_error([0.5] * 10, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0], bins=1)
    -0.1667
    """
    level, right = confidence_and_correct(confidence, correct)
    assign, residual = binner(level, bins, binning), right - array(level)

    def sums(weights: Array, index: Indices) -> tuple[Array, Array]:
        return bin_sums(index, weights, bins), bin_sums(index, weights * residual, bins)

    def under(weights: Array) -> Array:
        index = assign(weights)
        count, gap = sums(weights, index)
        mean = gap / np.where(count > 0, count, 1)
        spread = bin_sums(index, weights * residual**2, bins) - count * mean**2
        excess = spread / np.where(count > 1, count - 1, np.inf) / np.where(count > 0, count, 1)
        squares = np.where(count > 1, count * (mean**2 - excess), 0).sum(1)
        square = divide(squares, weights.sum(1))
        result: Array = np.sign(square) * np.sqrt(np.abs(square))
        return result

    def terms(base: Array) -> Callable[..., list[Terms]]:
        index = assign(base).ravel()
        size = np.sqrt(np.maximum(bin_sums(index, base, bins), 1) / base.sum())

        def vectors(weights: Array) -> list[Terms]:
            count, gap = sums(weights, index)
            return [(np.zeros(len(weights)), (size * gap / np.maximum(count, 1))[:, None])]

        return vectors

    def reach(level: float, base: Array) -> Array:
        delta = error_reach(right, base, level)
        share = bin_sums(assign(base).ravel(), base, bins) / max(base.sum(), 1)
        smallest = float(share[share > 0].min(initial=1))
        return np.full(2, np.sqrt(delta * min(1, delta / smallest)))

    return Functional((len(level),), under, terms=terms, reach=reach)
