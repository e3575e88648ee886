"""The threshold behind a coverage: where it comes from, and what it accepts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.evaluation.systems import Evaluation
from calibrant.metrics.functional import Array
from calibrant.metrics.inputs import fraction
from calibrant.predictions import Predictions


def thresholds(evaluation: Evaluation, coverages: Sequence[float]) -> Array:
    """The thresholds (G,) for the wanted `coverages`, from the validation data if there are any, else from the ID data.

    Each gives the smallest coverage of that data that is at least the wanted one, ties being accepted together.
    Coverage 1 accepts everything on any data: the threshold is then -infinity.
    """
    goals = np.array([fraction("coverages", coverage) for coverage in coverages])
    falling, covered = _ladder(evaluation)
    first = np.minimum(np.searchsorted(covered, goals, side="left"), len(falling) - 1)
    return np.where(goals == 1, -np.inf, falling[first])


def share_above(evaluation: Evaluation, outcome: Predictions) -> Array:
    """(N,): what share of the data that sets the threshold is accepted before each input of `outcome`.

    An input is accepted at a wanted coverage c just where c exceeds this share, or c = 1.
    """
    falling, covered = _ladder(evaluation)
    before = np.searchsorted(-falling, -outcome.acceptance, side="left")
    share: Array = np.append(0.0, covered)[before]
    return share


def threshold_source(evaluation: Evaluation) -> str:
    """`"validation"` or, with a threshold that the test data itself has set, `"test"`."""
    return "test" if evaluation.validation is None else "validation"


def _ladder(evaluation: Evaluation) -> tuple[Array, Array]:
    """The distinct acceptances, falling, of the data that set the threshold, and the coverage down to each."""
    outcome = evaluation.validation or evaluation.id
    rising, level = np.unique(-outcome.acceptance, return_inverse=True)
    covered = np.cumsum(np.bincount(level, outcome.weights)) / outcome.weights.sum()
    return -rising, covered
