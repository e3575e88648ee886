"""Systems with known faults, drawn from a seed: what the tests of tables, figures and the page are given."""

from __future__ import annotations

import numpy as np

from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions

CLASSES = 10


def inside(n: int, rng: np.random.Generator, *, overconfidence: float = 0.1, selector: bool = False) -> Predictions:
    """Inputs that are right with probability confidence - `overconfidence`."""
    confidence = rng.beta(5, 1.5, n).astype(np.float32)
    label = rng.integers(CLASSES, size=n)
    right = rng.random(n) < np.clip(confidence - overconfidence, 0, 1)
    predicted = np.where(right, label, (label + 1) % CLASSES)
    scores = rng.normal(size=(n, 2)).astype(np.float32)
    gate = 1 / (1 + np.exp(-4 * confidence + scores[:, 0])) if selector else None
    return Predictions(confidence, predicted, label, gate, scores=dict(zip(("density", "forest"), scores.T))).numpy()


def outside(n: int, rng: np.random.Generator, *, selector: bool = False) -> Predictions:
    confidence = rng.beta(2, 3, n).astype(np.float32)
    scores = (rng.normal(size=(n, 2)) + 1).astype(np.float32)
    gate = 1 / (1 + np.exp(-4 * confidence + scores[:, 0])) if selector else None
    named = dict(zip(("density", "forest"), scores.T))
    return Predictions(confidence, rng.integers(CLASSES, size=n), None, gate, scores=named).numpy()


def evaluation(
    system: str = "FNN", seed: int = 0, n: int = 300, *, validated: bool = False, overconfidence: float = 0.1
) -> Evaluation:
    """One system: the same labels for every seed, as one test set has."""
    rng = np.random.default_rng((seed, sum(map(ord, system))))
    selector = system.startswith("S")
    one = inside(n, rng, overconfidence=overconfidence, selector=selector)
    label = np.random.default_rng(0).integers(CLASSES, size=n)
    shifted = np.where(one.correct, label, (label + 1) % CLASSES)
    one = Predictions(one.confidence, shifted, label, one.selection, scores=one.scores)
    far = {"near": outside(n, rng, selector=selector), "far": outside(n // 2, rng, selector=selector)}
    check = inside(n, rng, overconfidence=overconfidence, selector=selector) if validated else None
    return Evaluation(system, seed, one, far, check, {"data": "synthetic"})
