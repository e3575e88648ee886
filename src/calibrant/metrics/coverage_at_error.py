"""How much can be answered while the answers given are wrong no more often than is tolerated."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant.metrics.arguments import fraction
from calibrant.metrics.declarations import measure
from calibrant.metrics.functional import Array, Functional, weighted
from calibrant.metrics.risk import risk_under

_SENTENCE = "largest coverage at which at most {} % of the answers given are wrong, all ID inputs"


@measure(
    "coverage at 1 % error", "higher", "percent", _SENTENCE.format(1),
    of="all ID", name="coverage_at_error_1", options={"error": 0.01}, show="page", position=63,
)  # fmt: skip
@measure(
    "coverage at 5 % error", "higher", "percent", _SENTENCE.format(5),
    of="all ID", name="coverage_at_error_5", options={"error": 0.05}, show="page", position=64,
)  # fmt: skip
@weighted
def coverage_at_error(acceptance: Any, correct: Any, *, error: float) -> Functional:
    """The largest coverage at which the selective error is at most `error`; 0 where no threshold achieves it.

    `acceptance` (n,), larger is accepted first, tied points together; `correct` (n,). It is read off the
    risk-coverage curve, the inverse of `selective_risk`; the threshold is chosen on the same data, so this describes
    the system and promises nothing: for a promise see `calibrant.selective.certificate`. A few errors among the first
    points accepted move it far, and bootstrap intervals of it hold the truth in two thirds of all samples only, so it
    has none.

    >>> coverage_at_error([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], error=0.25)
    1.0
    >>> coverage_at_error([0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1], error=0.01)
    0.5
    """
    goal, curve_under, size = fraction("error", error), *risk_under(acceptance, correct)

    def under(weights: Array) -> Array:
        covered, risk = curve_under(weights)
        result: Array = np.where(risk <= goal, covered, 0).max(1)
        return result

    return Functional((size,), under, covered=False)
