"""Intervals of measures that are sums of norms, such as the ECE or the total variation.

Such a measure is theta = s + sum_g |delta_g|, where s is smooth and each delta_g is a number (a bin's gap) or a vector;
the data give d_g = delta_g + Z_g with noise Z_g. Noise lifts |d_g| above |delta_g| where the truth is near 0, and there
the norm has a kink, for which no bootstrap of the value itself is right. But the noise can be resampled, Z*_g being the
resampled d_g less d_g, and the triangle inequality bounds what it does.
"""

from __future__ import annotations

import numpy as np

from calibrant.metrics.functional import Array

FAR = 3.0
"""How many standard deviations from 0 a term must be for its sign to be taken as known."""
_STEPS = 40


def norm_limits(terms: tuple[Array, Array], draws: tuple[Array, Array], level: float) -> tuple[float, float]:
    """The limits of s + sum_g |d_g|, not cut to any range; NaN where more than half of the draws are undefined.

    `terms` are s () and d (G, D), `draws` the same in R resamples, (R,) and (R, G, D).

    Of numbers (D = 1), the lower limit subtracts the upper quantile of

        S* + sum over far g of sign(d_g) Z*_g + sum over the other g of |Z*_g|

    where S* is the error of s and a term is far if |d_g| > 3 std(Z*_g): the triangle inequality, |d_g| <= |delta_g| +
    |Z_g|, where the sign may be wrong, and the exact expansion where it is known (as in the generalized moment
    selection of Andrews & Soares, 2010). The upper limit subtracts the lower quantile of S* + sum_g sign(d_g) Z*_g,
    because |d_g| >= sign(delta_g) d_g. Both quantiles are about 0 or beyond, so the interval holds the estimate.

    Vectors (D > 1) have no signs. Their norms are tested instead: lambda d is the truth if |d| lies between the
    quantiles of |lambda d + Z*|, and the limits are those of the lambda that are not rejected.

    >>> rng = np.random.default_rng(0)
    >>> gaps, noise = np.array([[0.1], [0.0]]), 0.01 * rng.normal(size=(4000, 2, 1))
    >>> low, high = norm_limits((np.zeros(()), gaps), (np.zeros(4000), gaps + noise), 0.95)
    >>> round(low, 2), round(high, 2)
    (0.07, 0.12)
    """
    smooth, parts = terms
    moved, errors = draws[0] - smooth, draws[1] - parts
    usable = np.isfinite(moved) & np.isfinite(flat(errors)).all(1)
    if 2 * usable.sum() < len(usable) or not (np.isfinite(smooth) and np.isfinite(parts).all()):
        return float("nan"), float("nan")
    limits = _of_numbers if parts.shape[1] == 1 else _of_vectors
    return limits(float(smooth), parts, moved[usable], errors[usable], np.array([(1 - level) / 2, (1 + level) / 2]))


def flat(parts: Array) -> Array:
    """(R, G, D) as (R, G D)."""
    return parts.reshape(len(parts), -1)


def _of_numbers(smooth: float, parts: Array, moved: Array, errors: Array, tails: Array) -> tuple[float, float]:
    gap, noise = parts[:, 0], errors[:, :, 0]
    far = np.abs(gap) > FAR * noise.std(0)
    along = noise * np.sign(gap)
    above = moved + along[:, far].sum(1) + np.abs(noise[:, ~far]).sum(1)
    below = moved + along.sum(1)
    plain = smooth + np.abs(gap).sum()
    return float(plain - np.quantile(above, tails[1])), float(plain - np.quantile(below, tails[0]))


def _of_vectors(smooth: float, parts: Array, moved: Array, errors: Array, tails: Array) -> tuple[float, float]:
    """By bisection for the factor lambda at which a quantile of the norm under lambda d meets the norm of d."""
    size = float(np.linalg.norm(parts, axis=1).sum())
    noise = float(np.quantile(np.linalg.norm(errors, axis=2).sum(1), tails[1]))
    # |lambda d + Z|^2 = lambda^2 |d|^2 + 2 lambda d.Z + |Z|^2
    along, square = np.einsum("gd,rgd->rg", parts, errors), (errors**2).sum(2)
    length = (parts**2).sum(1)

    def quantile(factor: float, tail: float) -> float:
        norms = np.sqrt(np.maximum(factor**2 * length + 2 * factor * along + square, 0))
        return float(np.quantile(moved + norms.sum(1), tail))

    def meeting(tail: float) -> float:
        low, high = 0.0, 2 + 2 * noise / max(size, np.finfo(float).tiny)
        if quantile(low, tail) >= size:
            return 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if quantile(middle, tail) < size else (low, middle)
        return high

    return smooth + size * meeting(tails[1]), smooth + size * meeting(tails[0])
