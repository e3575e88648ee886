"""The threshold behind a coverage: where it comes from, and what it accepts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrant.evaluation.systems import Evaluation
from calibrant.metrics.arguments import fraction
from calibrant.metrics.functional import Array
from calibrant.metrics.ordering import cumulated, falling
from calibrant.metrics.selection import threshold_rule
from calibrant.predictions import Predictions


def thresholds(evaluation: Evaluation, coverages: Sequence[float]) -> Array:
    """The thresholds (G,) for the wanted `coverages`, from the validation data if there are any, else from the ID data.

    Each gives the smallest coverage of that data that is at least the wanted one, ties being accepted together.
    Coverage 1 accepts everything on any data: the threshold is then -infinity.
    """
    goals = [fraction("coverages", coverage) for coverage in coverages]
    source = evaluation.validation or evaluation.id
    result: Array = threshold_rule(source.acceptance, goals)(source.weights[None])[0]
    return result


def share_above(evaluation: Evaluation, outcome: Predictions) -> Array:
    """(N,): what share of the data that sets the threshold is accepted before each input of `outcome`.

    An input is accepted at a wanted coverage c just where c exceeds this share, or c = 1.
    """
    source = evaluation.validation or evaluation.id
    levels, place = falling(source.acceptance)
    covered = cumulated(place, source.weights[None], len(levels))[0] / source.total
    before = np.searchsorted(-levels, -outcome.acceptance, side="left")
    share: Array = np.append(0.0, covered)[before]
    return share


def threshold_source(evaluation: Evaluation) -> str:
    """`"validation"` or, with a threshold that the test data itself has set, `"test"`."""
    return "test" if evaluation.validation is None else "validation"
