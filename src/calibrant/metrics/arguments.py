"""The pairs of arguments that most measures take, checked together."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.functional import Array, Indices, array, indices


def confidence_and_correct(confidence: Any, correct: Any) -> tuple[Any, Array]:
    """Confidences (n,) in [0, 1] and correctness (n,) of 0 and 1; or probabilities (n, C) and labels (n,).

    The confidence is a tensor if it was given as one, else an array, and keeps its dtype, which decides on which side
    of a bin's edge it lies. Of probabilities it is the largest of a row, and the class that has it is right or wrong.
    """
    given = checks.values("confidence", confidence)
    if given.ndim == 2:
        return _of_probabilities("confidence", given, correct)
    level = checks.measured.unit_interval("confidence", given)
    right = checks.measured.correctness("correct", correct)
    checks.same_length("correct", right, "confidence", level)
    return level, array(right)


def acceptance_and_correct(acceptance: Any, correct: Any) -> tuple[Array, Array]:
    """Scores (n,) by which points are accepted and correctness (n,) of 0 and 1; or probabilities (n, C) and labels."""
    given = checks.values("acceptance", acceptance)
    if given.ndim == 2:
        level, right = _of_probabilities("acceptance", given, correct)
        return array(level), right
    value, right = scores("acceptance", given), array(checks.measured.correctness("correct", correct))
    checks.same_length("correct", right, "acceptance", value)
    return value, right


def probabilities_and_labels(probabilities: Any, labels: Any) -> tuple[Any, Indices]:
    """Probabilities (n, C), a tensor or an array, with rows that sum to 1, and labels (n,) below C."""
    rows = checks.measured.probabilities("probabilities", probabilities)
    target = checks.measured.labels("labels", labels, rows.shape[1])
    checks.same_length("labels", target, "probabilities", rows)
    return rows, indices(target)


def scores(name: str, value: Any) -> Array:
    """Finite real scores (n,)."""
    return array(checks.finite(name, checks.measured.floating(name, value, dims=1)))


def acceptance_or_confidence(acceptance: Any, confidence: Any, prefix: str = "") -> Array:
    """The acceptance (n,), or the confidence (n,) where it is None; `prefix` begins the names of both in messages.

    In place of the confidence there may be probabilities (n, C), whose largest it is.
    """
    level = checks.values(f"{prefix}confidence", confidence)
    level = largest(level) if level.ndim == 2 and not prefix else level
    level = checks.measured.unit_interval(f"{prefix}confidence", level)
    if acceptance is None:
        return array(level)
    value = scores(f"{prefix}acceptance", acceptance)
    checks.same_length(f"{prefix}acceptance", value, f"{prefix}confidence", level)
    return value


def largest(probabilities: checks.Held) -> checks.Held:
    """The confidence (...,) of probabilities (..., C): the largest; rounding cannot lift it above 1."""
    rows: Any = probabilities
    top: checks.Held = rows.amax(-1).clamp(max=1.0) if checks.is_tensor(rows) else np.minimum(rows.max(-1), 1)
    return top


def fraction(name: str, value: float) -> float:
    """A number in (0, 1]."""
    try:
        inside = bool(0 < value <= 1)
    except (TypeError, ValueError, RuntimeError):  # no number, or several
        inside = False
    if not inside:
        raise InputError(f"{name} must lie in (0, 1], not {value!r}")
    return float(value)


def _of_probabilities(name: str, probabilities: Any, labels: Any) -> tuple[Any, Array]:
    """The confidence (n,) of probabilities (n, C), and whether the class that has it is the label."""
    try:
        rows, target = probabilities_and_labels(probabilities, labels)
    except ValueError as error:
        message = f"{name} must have 1 dimension beside correct, or 2 if it is probabilities beside labels: {error}"
        raise InputError(message) from None
    return largest(rows), (indices(rows.argmax(1)) == target).astype(np.float64)
