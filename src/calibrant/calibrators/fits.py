"""What each calibrator fits, in NumPy: its values from held-out logits and labels, and the probabilities that follow.

Tables of predictions are recalibrated here without torch; the calibrators beside this file are the same maps as torch
modules. Everywhere z (N, C) are logits, of which only the differences within a row matter, y (N,) the labels, and a
state holds the fitted values by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
State = dict[str, Any]
LOWEST_SCALE, HIGHEST_SCALE = 0.01, 100.0
_STEPS = 100
_TOLERANCE = 1e-10


class Fit(NamedTuple):
    """A calibrator as two functions: z (N, C) and y (N,) to a state, and z with that state to probabilities (N, C)."""

    fit: Callable[[Floats, NDArray[np.int64]], State]
    probabilities: Callable[[Floats, Mapping[str, Any]], Floats]


def softmax(z: Floats) -> Floats:
    """The probabilities (N, C) of logits (N, C)."""
    shifted = np.exp(z - z.max(1, keepdims=True))
    result: Floats = shifted / shifted.sum(1, keepdims=True)
    return result


def best_scale(derivatives: Callable[[float], tuple[float, float]], *, halve: int = 3) -> float:
    """Where a convex loss of one scale b in [0.01, 100] is least, by Newton steps that are kept inside a bracket.

    `derivatives` maps b to the slope and the curvature of the loss. Every step number `halve` halves the bracket
    instead, because where the loss is nearly flat Newton creeps; a larger `halve` is faster where it is not.
    """
    low, high, scale = LOWEST_SCALE, HIGHEST_SCALE, 1.0
    for step in range(_STEPS):
        slope, curvature = derivatives(scale)
        newton = scale - slope / curvature if curvature > 0 else math.inf
        if slope == 0 or abs(newton - scale) <= _TOLERANCE * scale:
            break
        low, high = (scale, high) if slope < 0 else (low, scale)
        scale = newton if low < newton < high and (step + 1) % halve else math.sqrt(low * high)
    return scale


def fit_temperature(z: Floats, y: NDArray[np.int64]) -> State:
    """The temperature T at which the mean of -log softmax(z / T)_y is least, in [0.01, 100].

    >>> fit_temperature(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))["temperature"]  # log 3 = 2 / T
    1.8205
    """
    relative = np.asfortranarray(z - z[np.arange(len(z)), y][:, None])  # sums over few classes are faster so
    square = relative**2

    def derivatives(scale: float) -> tuple[float, float]:
        p = softmax(scale * relative)
        mean = (p * relative).sum(1)
        return float(mean.mean()), float(((p * square).sum(1) - mean**2).mean())

    return {"temperature": 1 / best_scale(derivatives, halve=8)}


def scaled_probabilities(z: Floats, state: Mapping[str, Any]) -> Floats:
    """Softmax(z / T)."""
    return softmax(z / state["temperature"])


def fit_vector(z: Floats, y: NDArray[np.int64], *, penalty: float = 1.0) -> State:
    """Structured vector scaling: a temperature T, then a scale v and a bias b for each class, held near 1 and 0.

    With q = (N softmax(z / T) + 1 / C) / (N + 1), v and b minimize, by L-BFGS,

        mean of -log softmax(v log q + b)_y  +  penalty C / N  (|v - 1|^2 + |b|^2)
    """
    from scipy.optimize import minimize

    (n, classes), rows = z.shape, np.arange(len(z))
    state = {**fit_temperature(z, y), "uniform": 1 / (n + 1)}
    x, weight = _log_mixed(z, state), penalty * classes / n

    def objective(parameters: Floats) -> tuple[float, Floats]:
        change, bias = parameters[:classes], parameters[classes:]
        t = x * (1 + change) + bias
        t -= t.max(1, keepdims=True)
        own = t[rows, y]
        np.exp(t, out=t)
        total = t.sum(1)
        loss = float((np.log(total) - own).mean()) + weight * float(parameters @ parameters)
        t /= total[:, None]
        t[rows, y] -= 1
        gradient = np.concatenate([np.einsum("nc,nc->c", t, x), t.sum(0)]) / n
        return loss, gradient + 2 * weight * parameters

    options = {"maxiter": 500, "ftol": 1e-12, "gtol": 1e-7}
    found = minimize(objective, np.zeros(2 * classes), jac=True, method="L-BFGS-B", options=options).x
    return {**state, "scale": 1 + found[:classes], "bias": found[classes:]}


def vector_probabilities(z: Floats, state: Mapping[str, Any]) -> Floats:
    """Softmax(v log q + b)."""
    return softmax(_log_mixed(z, state) * state["scale"] + state["bias"])


def _log_mixed(z: Floats, state: Mapping[str, Any]) -> Floats:
    """Log q: a small part of the uniform distribution keeps the logarithm of what underflows from deciding."""
    u = state["uniform"]
    result: Floats = np.log((1 - u) * scaled_probabilities(np.asfortranarray(z), state) + u / z.shape[1])
    return result


def fit_isotonic(z: Floats, y: NDArray[np.int64]) -> State:
    """Isotonic regression g of "is this the label?" on the probability: knots and levels of a piecewise linear g.

    Of two classes g is fitted to the probability of the second one. Of more classes the N C probabilities of all
    classes are pooled, and one g serves all.
    """
    p, hit = softmax(z), np.zeros(z.shape)
    hit[np.arange(len(z)), y] = 1
    chosen = slice(1, None) if z.shape[1] == 2 else slice(None)
    knots, levels = isotonic_regression(p[:, chosen].ravel(), hit[:, chosen].ravel())
    return {"knots": knots, "levels": levels, "rows": len(z)}


def isotonic_regression(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Knots and levels (J,) of the increasing function of x (N,) with the least squares of y (N,), linear between.

    The same function as scikit-learn's `IsotonicRegression`, which takes much longer to import.

    >>> isotonic_regression(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 1.0, 0.0, 1.0]))
    (array([0.1, 0.2, 0.3, 0.4]), array([0. , 0.5, 0.5, 1. ]))
    """
    from scipy.optimize import isotonic_regression as increasing

    knots, where, count = np.unique(x, return_inverse=True, return_counts=True)
    levels = np.asarray(increasing(np.bincount(where, y) / count, weights=count).x)
    inner = np.zeros(len(levels), bool)
    inner[1:-1] = (levels[1:-1] == levels[:-2]) & (levels[1:-1] == levels[2:])
    return knots[~inner], levels[~inner]


def isotonic_probabilities(z: Floats, state: Mapping[str, Any]) -> Floats:
    """In proportion to N g(p) + p + 1 / C; of two classes the second has just that, divided by N + 2."""
    p, n, classes = softmax(z), state["rows"], z.shape[1]
    if classes == 2:
        second = (n * np.interp(p[:, 1], state["knots"], state["levels"]) + p[:, 1] + 0.5) / (n + 2)
        return np.stack([1 - second, second], 1)
    mass = n * np.interp(p, state["knots"], state["levels"]) + p + 1 / classes
    result: Floats = mass / mass.sum(1, keepdims=True)
    return result


FITS: Mapping[str, Fit] = {
    "temperature": Fit(fit_temperature, scaled_probabilities),
    "isotonic": Fit(fit_isotonic, isotonic_probabilities),
    "vector": Fit(fit_vector, vector_probabilities),
}
"""By the name of the calibrator, from few fitted values to many."""
