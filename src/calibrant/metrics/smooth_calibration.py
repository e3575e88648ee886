"""The smooth calibration error: no bins, and a bandwidth that the data choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics.arguments import confidence_and_correct
from calibrant.metrics.declarations import measure
from calibrant.metrics.few_errors import lipschitz_reach
from calibrant.metrics.functional import Array, Functional, Terms, absolute_terms, array, bin_sums, divide, weighted

Waves = NDArray[np.complex128]
CELLS = 1024
_STEPS = 12


@measure(
    "smECE", "lower", "percent", "smooth calibration error of the accepted ID inputs, without bins",
    name="smece", show="page", position=61,
)  # fmt: skip
@weighted
def smooth_calibration_error(confidence: Any, correct: Any) -> Functional:
    """SmECE (Błasiok & Nakkiran, "Smooth ECE", ICLR 2024), in [0, 1]; `confidence` (n,) in [0, 1], `correct` (n,).

    With residuals e_i = c_i - r_i and the Gaussian kernel K_s of bandwidth s, reflected at 0 and 1,

        smECE_s = integral over t from 0 to 1 of |1/n sum_i K_s(t, r_i) e_i|

    falls as s rises, and the smECE is the value at the bandwidth that equals it, smECE_s = s. Unlike the ECE it is a
    consistent measure of the distance to calibration: no choice of bins, no jumps when a confidence crosses an edge.

    The residuals are spread over 1,024 cells, each over the two nearest, and smoothed in the cosine basis, in which the
    reflected kernel multiplies frequency k by exp(-(pi k s)^2 / 2): O(n) and a few transforms of 2,048 numbers. Values
    below about 0.002 are resolved no further.

    When outcomes c become c', smECE_s changes by at most delta = E|c - c'| at every s, because the kernel integrates to
    1; and so does the value: smECE'_s falls with s, and at s = smECE + delta it is at most smECE + delta. Where few
    answers are wrong, or few are right, the interval is therefore extended by Wilson's of the accuracy
    (`calibrant.metrics.few_errors`).

    >>> smooth_calibration_error([0.9, 0.9, 0.9, 0.9], [1, 1, 0, 0])
    0.4
    """
    level, right = confidence_and_correct(confidence, correct)
    spread = _spread(array(level), right - array(level))

    def under(weights: Array) -> Array:
        waves = spread(weights)
        found = _fixed_point(waves)
        result: Array = np.abs(_smoothed(waves, found)).sum(1)
        return result

    def terms(base: Array) -> Callable[..., list[Terms]]:
        bandwidth = _fixed_point(spread(base))
        return absolute_terms(lambda weights: _smoothed(spread(weights), bandwidth))(base)

    return Functional((len(right),), under, terms=terms, reach=lipschitz_reach(right))


def _spread(confidence: Array, residual: Array) -> Callable[[Array], Waves]:
    """A function from weights (R, n) to the cosine coefficients (R, CELLS + 1) of the residuals over the cells.

    Cell j lies around (j + 1/2) / CELLS; what falls below the first middle or above the last stays in that cell.
    """
    place = np.clip(confidence * CELLS - 0.5, 0, CELLS - 1)
    left = np.minimum(place.astype(np.int64), CELLS - 2)
    part = place - left

    def under(weights: Array) -> Waves:
        mass = divide(weights * residual, weights.sum(1)[:, None])
        cells = bin_sums(left, mass * (1 - part), CELLS) + bin_sums(left + 1, mass * part, CELLS)
        waves: Waves = np.fft.rfft(np.concatenate([cells, cells[:, ::-1]], axis=1))
        return waves

    return under


def _smoothed(waves: Waves, bandwidth: Array) -> Array:
    """The mass (R, CELLS) in each cell after smoothing with `bandwidth` (R,) or (1,)."""
    frequency = np.pi * np.arange(CELLS + 1)
    damped = waves * np.exp(-((frequency * bandwidth[:, None]) ** 2) / 2)
    result: Array = np.fft.irfft(damped, 2 * CELLS)[:, :CELLS]
    return result


def _fixed_point(waves: Waves) -> Array:
    """The bandwidth (R,) that the smoothed error equals, by bisection; NaN where there are no points."""
    low, high = np.zeros(len(waves)), np.ones(len(waves))
    for _ in range(_STEPS):
        middle = (low + high) / 2
        above = np.abs(_smoothed(waves, middle)).sum(1) > middle
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    result: Array = np.where(np.isfinite(waves[:, 0]), (low + high) / 2, np.nan)
    return result
