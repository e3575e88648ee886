"""Thresholds for a coverage, of anything that holds numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from calibrant import InputError
from calibrant.selective import threshold_for_coverage


@pytest.mark.parametrize("form", [list, np.array, pd.Series, lambda gate: torch.tensor(gate, dtype=torch.float64)])
def test_a_threshold_is_found_in_lists_arrays_series_and_tensors(form: Callable[[Any], Any]) -> None:
    threshold = threshold_for_coverage(form([0.1, 0.4, 0.4, 0.9]), 0.5)
    assert (threshold.value, threshold.achieved, threshold.accepted, threshold.total) == (0.4, 0.75, 3, 4)
    assert threshold_for_coverage(form([0.1, 0.4]), 1.0).value == -math.inf


@pytest.mark.parametrize(
    ("gate", "named"), [([], "gate"), ([1, 2], "gate must be floating"), ([0.1, math.nan], "gate holds NaN")]
)
def test_bad_gates_are_named(gate: list[float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        threshold_for_coverage(gate, 0.5)


@pytest.mark.parametrize("coverage", ["x", None, [0.5, 0.6], torch.tensor([0.5, 0.6]), float("nan"), 1.1])
def test_a_coverage_that_is_no_share_is_refused(coverage):
    with pytest.raises(InputError, match=r"coverage must lie in \[0, 1\], not"):
        threshold_for_coverage([0.1, 0.4], coverage)
