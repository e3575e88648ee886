"""Curves over coverage where a threshold from validation data accepts nothing of the test data."""

from __future__ import annotations

import numpy as np

from calibrant.evaluation import Evaluation, coverage_curves
from calibrant.predictions import Predictions


def test_measures_of_the_accepted_are_missing_where_nothing_is_accepted() -> None:
    sure = Predictions([0.99] * 20, [0] * 20, [0] * 20).numpy()
    unsure = Predictions([0.4 + 0.01 * k for k in range(20)], [0] * 20, [k % 2 for k in range(20)]).numpy()
    evaluation = Evaluation("a", 0, unsure, {"far": unsure}, validation=sure)
    (curve,) = coverage_curves([evaluation], [0.5], bins=5)
    assert curve.accepted.tolist() == [[0]]
    for name in ("accuracy", "ece", "ece_mass"):
        assert np.isnan(curve.measures[name]).all(), name
