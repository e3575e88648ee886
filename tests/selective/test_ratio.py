"""The likelihood ratio: the solver against another one, consistency, signs, which detectors enter."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from calibrant.selective.ratio import _scale, fit_ratio, penalty_matrix, solve


def value(fit, scores):
    """The log ratio (n,) of the definition, one input and one segment at a time."""
    result = []
    for row in scores[:, list(fit.chosen)]:
        total = fit.intercept
        for score, center, scale, knots, slopes in zip(row, fit.center, fit.scale, fit.knots, fit.slopes):
            z = 3 * math.asinh((score - center) / (3 * scale))
            for start, end, slope in zip(knots, [*knots[1:], math.inf], slopes):
                total += slope * (min(max(z, start), end) - start)
        result.append(total)
    return np.array(result)


def shifted(rng, shift, size, columns=1):
    return rng.normal(shift, 1, (size, columns))


@pytest.mark.parametrize("weight", [100.0, 1.0, 0.01])
def test_the_solver_finds_the_constrained_optimum(weight):
    rng = np.random.default_rng(1)
    outlier = rng.random(400) < 0.2
    design = np.hstack([np.ones((400, 1)), rng.normal(0, 1, (400, 8)) + np.outer(outlier, np.linspace(-1, 1, 8))])
    penalty = weight * penalty_matrix(2)

    def objective(b):
        t = design @ b
        p = 1 / (1 + np.exp(-t))
        loss = (np.logaddexp(0, t) - outlier * t).sum() + b @ penalty @ b / 2
        return loss, design.T @ (p - outlier) + penalty @ b

    bounds = [(None, None)] + [(0, None)] * 8
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000}
    oracle = minimize(objective, np.zeros(9), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    found = solve(design, outlier, penalty)
    assert (found[1:] >= 0).all()
    assert objective(found)[0] <= oracle.fun + 1e-7
    assert found == pytest.approx(oracle.x, abs=1e-3)


def test_the_penalty_is_the_quadratic_form_it_says():
    rng = np.random.default_rng(0)
    slopes = rng.random((3, 4))
    form = sum(row.mean() ** 2 + 10 * (np.diff(row) ** 2).sum() for row in slopes)
    b = np.concatenate([[7.0], slopes.ravel()])
    assert b @ penalty_matrix(3) @ b == pytest.approx(form)


@pytest.mark.parametrize("outliers", [50, 500, 4000])
def test_imbalance_does_not_bias_the_ratio(outliers):
    """N(0, 1) against N(2, 1): log ratio = 2 s - 2, whatever the numbers of examples."""
    grid = np.linspace(-1, 3, 41)[:, None]
    found = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        fit = fit_ratio(shifted(rng, 0, 2000), shifted(rng, 2, outliers), folds=5, seed=seed)
        found.append(value(fit, grid) - (2 * grid[:, 0] - 2))
    assert abs(np.mean(found)) < {50: 0.35, 500: 0.15, 4000: 0.1}[outliers]


def test_more_data_bring_the_ratio_to_the_truth_through_any_monotone_transform():
    rng = np.random.default_rng(0)
    normal, outlying = shifted(rng, 0, 4000), shifted(rng, 2, 2000)
    grid = np.linspace(-1, 3, 41)[:, None]
    for transform in (lambda s: s, lambda s: np.exp(s / 2), lambda s: 1000 * np.sinh(s) - 5, np.arctan):
        fit = fit_ratio(transform(normal), transform(outlying), folds=5, seed=0)
        p, truth = (1 / (1 + np.exp(t)) for t in (value(fit, transform(grid)), 2 * grid[:, 0] - 2))
        assert np.abs(p - truth).mean() < 0.025


@pytest.mark.parametrize("outliers", [20, 300])
def test_an_inverted_detector_does_not_enter(outliers):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        normal = np.hstack([shifted(rng, 0, 1000), shifted(rng, 0, 1000)])
        outlying = np.hstack([shifted(rng, -2, outliers), shifted(rng, 2, outliers)])
        assert fit_ratio(normal, outlying, folds=5, seed=seed).chosen == (1,)


def test_without_a_useful_detector_the_ratio_is_one():
    rng = np.random.default_rng(0)
    fit = fit_ratio(shifted(rng, 0, 500), shifted(rng, -3, 50), folds=5, seed=0)
    assert fit.chosen == ()
    assert fit.slopes.shape == (0, 4)
    assert fit.intercept == pytest.approx(0, abs=1e-6)
    assert fit.likelihood == -math.log(2)


def test_irrelevant_detectors_are_mostly_left_out_and_harmless():
    entered, errors = 0, []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        normal = np.hstack([shifted(rng, 0, 1000), shifted(rng, 0, 1000, 4)])
        outlying = np.hstack([shifted(rng, 2, 100), shifted(rng, 0, 100, 4)])
        fit = fit_ratio(normal, outlying, folds=5, seed=seed)
        assert 0 in fit.chosen
        entered += len(fit.chosen) - 1
        test = np.vstack([np.hstack([shifted(rng, mean, 1000), shifted(rng, 0, 1000, 4)]) for mean in (0, 2)])
        errors.append(np.abs(1 / (1 + np.exp(value(fit, test))) - 1 / (1 + np.exp(2 * test[:, 0] - 2))).mean())
    assert entered <= 6  # of 24
    assert np.mean(errors) < 0.03


def test_ties_and_constants_are_no_obstacle():
    rng = np.random.default_rng(0)
    normal = np.hstack([np.zeros((300, 1)), rng.integers(0, 2, (300, 1)).astype(float), np.ones((300, 1))])
    outlying = np.hstack([np.zeros((30, 1)), np.full((30, 1), 2.0), np.full((30, 1), 3.0)])
    fit = fit_ratio(normal, outlying, folds=5, seed=0)
    assert 0 not in fit.chosen
    assert np.isfinite(fit.slopes).all()
    assert (value(fit, outlying) > value(fit, normal).max()).all()


def test_the_same_data_give_the_same_fit():
    rng = np.random.default_rng(0)
    data = shifted(rng, 0, 300, 2), shifted(rng, 1, 40, 2)
    first, again = (fit_ratio(*data, folds=5, seed=3) for _ in range(2))
    assert first.chosen == again.chosen
    assert first.slopes.tobytes() == again.slopes.tobytes()


def test_the_scale_is_that_of_the_scores_wherever_they_lie():
    """The interquartile range of -1, 0, 1, ... is 1; where it is 0, the deviation counts, and where that is, of all."""
    validation = np.tile([-1.0, -0.5, 0.0, 0.5, 1.0], 20)
    tied = np.repeat([0.0, 10.0], [90, 10])
    for place in (0.0, 1000.0):
        columns = np.stack([validation, tied, np.zeros(100)], 1) + place
        outliers = np.stack([np.zeros(100), np.zeros(100), np.full(100, 6.0)], 1) + place
        assert _scale(columns, outliers) == pytest.approx([1 / 1.349, 3.0, 3.0])
