"""The likelihood ratio outlier / ID from detectors' scores: a logistic fit that is monotone by construction.

With s_1, ..., s_S the scores of an input, larger is more outlying,

    z_d = 3 asinh((s_d - center_d) / (3 scale_d))
    log ratio(s) = intercept + sum_d sum_j slope_dj * (min(max(z_d, knot_dj), knot_d(j+1)) - knot_dj),     slope_dj >= 0

center and scale are the median of the validation data and their interquartile range divided by 1.349, so z is the
standardized score within about three standard deviations, and grows like its logarithm beyond: scores with heavy tails
do no harm. Each sum over j is a nondecreasing, piecewise linear function. It is constant below its first knot, the 1 %
quantile of the validation data: being less outlying than nearly all of them earns no further credit. It continues with
its last slope above its last knot. The other knots are quantiles of validation data and outliers in equal parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrant.metrics.functional import Array

SEGMENTS = 4
_PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
_BEND = 10.0  # how much more a change of slope costs than a slope
TAIL = 3.0  # standard deviations within which a score counts linearly
FARTHEST = 1e12  # thereby finite in float32
_LOWEST = 0.01  # quantile of the validation data below which a score is not told apart
_ROUNDING = 1e-6  # of a log-likelihood per example
_MOST = 5000  # rows of each kind on which detectors and penalty are chosen


@dataclass(frozen=True, eq=False)
class RatioFit:
    """The fitted log ratio of D chosen detectors, and how it was chosen.

    Attributes:
        chosen: (D,) the columns that enter.
        center: (D,) of the scores.
        scale: (D,) of the scores.
        knots: (D, J) where the segments begin, in z.
        slopes: (D, J) of the segments, nonnegative.
        intercept: the log ratio below all first knots.
        penalty: weight of the quadratic penalty on the slopes.
        likelihood: cross-validated log-likelihood per example, outliers and ID in equal parts; -log 2 for a ratio of 1.
    """

    chosen: tuple[int, ...]
    center: Array
    scale: Array
    knots: Array
    slopes: Array
    intercept: float
    penalty: float
    likelihood: float

    def log_ratio(self, scores: Array) -> Array:
        """The fitted log ratio (n,) of scores (n, S) of all detectors, of which the chosen columns are read."""
        relative = (scores[:, list(self.chosen)] - self.center) / (TAIL * self.scale)
        z = TAIL * np.arcsinh(np.clip(relative, -FARTHEST, FARTHEST))
        result: Array = _segments(z, self.knots) @ self.slopes.ravel() + self.intercept
        return result


@dataclass(frozen=True, eq=False)
class _Sample:
    """Design (n, S J), outlier or not (n,), and fold (n,) of the rows; J columns of the design belong to a detector."""

    design: Array
    outlier: NDArray[np.bool_]
    fold: NDArray[np.int64]

    @property
    def half(self) -> Array:
        """How much each row counts (n,) where outliers and ID count equally: the ratio has no share of outliers."""
        half: Array = np.where(self.outlier, 0.5 / self.outlier.sum(), 0.5 / (~self.outlier).sum())
        return half

    def of(self, detectors: Sequence[int]) -> Array:
        """The design (n, 1 + D J) of some detectors, with a column of ones in front."""
        columns = [SEGMENTS * detector + segment for detector in detectors for segment in range(SEGMENTS)]
        return np.hstack([np.ones((len(self.design), 1)), self.design[:, columns]])


def fit_ratio(validation: Array, outliers: Array, *, folds: int, seed: int) -> RatioFit:
    """Fit to scores (N, S) of validation data and (M, S) of outliers, in float64.

    The penalized log-likelihood of a logistic regression of "is an outlier" is maximized over nonnegative slopes. Its
    odds are those in the data at hand, so the ratio is odds * N / M, whatever N and M are. The penalty holds the slopes
    of neighboring segments together and pulls their mean to 0; its weight maximizes the cross-validated likelihood. A
    detector enters if by itself it raises that likelihood above the one of a ratio of 1, by more than one standard
    error of the rise, and leaves again if the likelihood without it is higher than with it by as much.
    """
    center, scale = np.median(validation, axis=0), _scale(validation, outliers)
    relative = [np.clip((scores - center) / (TAIL * scale), -FARTHEST, FARTHEST) for scores in (validation, outliers)]
    standard = [TAIL * np.arcsinh(scores) for scores in relative]
    knots = _knots(standard[0], standard[1])
    own, theirs = (_segments(z, knots) for z in standard)
    chosen, penalty, likelihood = _choose(own, theirs, folds=folds, seed=seed)
    sample = _sample(own, theirs, folds, np.random.default_rng(seed))
    weights = solve(sample.of(chosen), sample.outlier, penalty * penalty_matrix(len(chosen)))
    slopes = weights[1:].reshape(-1, SEGMENTS)
    intercept = float(weights[0] + np.log(len(validation) / len(outliers)))
    used = np.flatnonzero(slopes.any(axis=1))
    kept = [chosen[position] for position in used]
    standardization = center[kept], scale[kept]
    return RatioFit(tuple(kept), *standardization, knots[kept], slopes[used], intercept, penalty, likelihood)


def solve(design: Array, outlier: NDArray[np.bool_], penalty: Array, start: Array | None = None) -> Array:
    """Coefficients (p,) of the penalized logistic regression, all but the first held nonnegative.

    Minimizes sum_i log(1 + exp(t_i)) - y_i t_i + b' P b / 2 with t = X b, for design X (n, p), outlier y (n,) and
    penalty P (p, p), by Newton steps in the coefficients that are not held at 0 by their gradient, projected and
    shortened until the objective falls (Bertsekas 1982).
    """
    from scipy.special import expit

    y, ridge = outlier.astype(np.float64), 1e-9 * np.eye(design.shape[1])

    def objective(coefficients: Array) -> float:
        t = design @ coefficients
        return float((np.logaddexp(0, t) - y * t).sum() + coefficients @ penalty @ coefficients / 2)

    b = np.zeros(design.shape[1]) if start is None else start
    value = objective(b)
    for _ in range(200):
        p = expit(design @ b)
        gradient = design.T @ (p - y) + penalty @ b
        free = (b > 0) | (gradient < 0)
        free[0] = True
        hessian = (design * (p * (1 - p))[:, None]).T @ design + penalty + ridge
        step = np.zeros_like(b)
        step[free] = -np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        for shortening in 0.5 ** np.arange(40):
            trial = b + shortening * step
            trial[1:] = np.maximum(trial[1:], 0)
            reached = objective(trial)
            if reached <= value + 1e-4 * gradient @ (trial - b):
                break
        done = value - reached <= 1e-11 * max(1.0, abs(value))
        if reached <= value:
            b, value = trial, reached
        if done:
            break
    return b


def penalty_matrix(detectors: int) -> Array:
    """(p, p) of sum_d (mean_j slope_dj)^2 + 10 sum_j (slope_d(j+1) - slope_dj)^2; the intercept in front is free."""
    steps = np.diff(np.eye(SEGMENTS), axis=0)
    block = np.full((SEGMENTS, SEGMENTS), 1 / SEGMENTS**2) + _BEND * steps.T @ steps
    result = np.zeros((1 + detectors * SEGMENTS,) * 2)
    result[1:, 1:] = np.kron(np.eye(detectors), block)
    return result


def _choose(validation: Array, outliers: Array, *, folds: int, seed: int) -> tuple[tuple[int, ...], float, float]:
    """The detectors that enter, in the order of the columns, the penalty and the cross-validated likelihood."""
    rng = np.random.default_rng(seed)
    rows = [part[rng.permutation(len(part))[:_MOST]] for part in (validation, outliers)]
    sample = _sample(rows[0], rows[1], folds, rng)
    detectors = range(validation.shape[1] // SEGMENTS)
    nothing = np.full(len(sample.outlier), -np.log(2))
    chosen = [d for d in detectors if _rises(_held_out(sample, [d])[0], nothing, sample)]
    if not chosen:
        return (), _PENALTIES[0], -float(np.log(2))
    held_out, penalty = _held_out(sample, chosen)
    while len(chosen) > 1:
        fewer = [[d for d in chosen if d != left] for left in chosen]
        trials = [(*_held_out(sample, remaining), remaining) for remaining in fewer]
        without = max(trials, key=lambda trial: float(trial[0] @ sample.half))
        if not _rises(without[0], held_out, sample):
            break
        held_out, penalty, chosen = without
    return tuple(chosen), penalty, float(held_out @ sample.half)


def _rises(after: Array, before: Array, sample: _Sample) -> bool:
    """Whether the log-likelihoods (n,) rise on average, by more than one standard error of the rise."""
    rise, outlier = after - before, sample.outlier
    centered = rise - np.where(outlier, rise[outlier].mean(), rise[~outlier].mean())
    return bool(rise @ sample.half > np.sqrt(sample.half**2 @ centered**2) + _ROUNDING)


def _held_out(sample: _Sample, detectors: Sequence[int]) -> tuple[Array, float]:
    """The log-likelihoods (n,) of the rows at equal parts, each by the fit without its fold, and the best penalty."""
    design, result = sample.of(detectors), np.empty((len(_PENALTIES), len(sample.fold)))
    for fold in range(sample.fold.max() + 1):
        inside = sample.fold != fold
        outlier, start = sample.outlier[inside], None
        offset = np.log((~outlier).sum() / outlier.sum())
        for row, penalty in enumerate(_PENALTIES):
            start = solve(design[inside], outlier, penalty * penalty_matrix(len(detectors)), start)
            log_ratio = design[~inside] @ start + offset
            result[row, ~inside] = -np.logaddexp(0, np.where(sample.outlier[~inside], -log_ratio, log_ratio))
    best = int((result @ sample.half).argmax())
    return result[best], _PENALTIES[best]


def _sample(validation: Array, outliers: Array, folds: int, rng: np.random.Generator) -> _Sample:
    """Both parts in one, each spread evenly over the folds."""
    parts = (len(validation), len(outliers))
    fold = np.concatenate([rng.permutation(size) % folds for size in parts])
    return _Sample(np.vstack([validation, outliers]), np.repeat([False, True], parts), fold)


def _segments(scores: Array, knots: Array) -> Array:
    """How far scores (n, S) reach into each segment, (n, S J)."""
    upper = np.hstack([knots[:, 1:], np.full((len(knots), 1), np.inf)])
    return (np.clip(scores[:, :, None], knots, upper) - knots).reshape(len(scores), -1)


def _scale(validation: Array, outliers: Array) -> Array:
    """(S,): the first that is not 0 of the interquartile range / 1.349 and the standard deviations of one and both."""
    low, center, high = np.quantile(validation, [0.25, 0.5, 0.75], axis=0)
    both = np.vstack([validation, outliers])
    least = 1e-7 * np.abs(center)  # below the resolution of float32
    scale = np.ones(validation.shape[1])
    for candidate in (both.std(0), validation.std(0), (high - low) / 1.349):
        scale = np.where(candidate > least, candidate, scale)
    return scale


def _knots(validation: Array, outliers: Array) -> Array:
    """(S, J): the 1 % quantile of the validation data, then quantiles of both in equal parts."""
    weights = np.repeat([0.5 / len(validation), 0.5 / len(outliers)], [len(validation), len(outliers)])
    knots = np.empty((validation.shape[1], SEGMENTS))
    for row, scores in zip(knots, np.vstack([validation, outliers]).T):
        order = scores.argsort(kind="stable")
        levels = weights[order].cumsum() - weights[order] / 2
        row[1:] = np.interp(np.arange(1, SEGMENTS) / SEGMENTS, levels, scores[order])
        row[0] = np.quantile(scores[: len(validation)], _LOWEST)
    return np.maximum.accumulate(knots, axis=1)
