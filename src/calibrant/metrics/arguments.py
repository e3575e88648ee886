"""The pairs of arguments that most measures take, checked together."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from calibrant import checks
from calibrant.metrics.functional import Array, Indices, array


def confidence_and_correct(confidence: Any, correct: Any) -> tuple[Tensor, Array]:
    """Confidences (n,) in [0, 1] and correctness (n,) of 0 and 1.

    The confidence keeps its dtype, which decides on which side of a bin's edge it lies.
    """
    level = checks.unit_interval("confidence", confidence)
    right = checks.correctness("correct", correct)
    checks.same_length("correct", right, "confidence", level)
    return level, array(right)


def probabilities_and_labels(probabilities: Any, labels: Any) -> tuple[Tensor, Indices]:
    """Probabilities (n, C) with rows that sum to 1 and labels (n,) below C."""
    rows = checks.probabilities("probabilities", probabilities)
    target = checks.labels("labels", labels, rows.shape[1])
    checks.same_length("labels", target, "probabilities", rows)
    return rows, target.cpu().numpy()


def scores(name: str, value: Any) -> Array:
    """Finite real scores (n,)."""
    return array(checks.finite(name, checks.floating(name, value, dims=1)))


def acceptance_or_confidence(acceptance: Any, confidence: Any, prefix: str = "") -> Array:
    """The acceptance (n,), or the confidence (n,) where it is None; `prefix` begins the names of both in messages."""
    level = checks.unit_interval(f"{prefix}confidence", confidence)
    if acceptance is None:
        return array(level)
    value = scores(f"{prefix}acceptance", acceptance)
    checks.same_length(f"{prefix}acceptance", checks.tensor("acceptance", value), f"{prefix}confidence", level)
    return value


def fraction(name: str, value: float) -> float:
    """A number in (0, 1]."""
    if not (np.isfinite(value) and 0 < value <= 1):
        raise ValueError(f"{name} must lie in (0, 1], not {value}")
    return float(value)
