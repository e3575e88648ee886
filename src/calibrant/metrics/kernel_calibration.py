"""The maximum mean calibration error as a measure, over all points or over those that a selector accepts."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.arguments import confidence_and_correct
from calibrant.metrics.functional import Array, Functional, array, divide, weighted


@weighted
def mmce(confidence: Any, correct: Any, width: float = 0.4) -> Functional:
    """MMCE = sqrt(1 / n^2 sum_ij (c_i - r_i)(c_j - r_j) exp(-|r_i - r_j| / width)), in [0, 1].

    Exact in O(n log n), without bins. Its scale is that of the kernel: compare only at equal width and, because the
    terms i = j bias it upwards, at equal n.

    >>> mmce([0.8], [1])
    0.2
    """
    level, right = confidence_and_correct(confidence, correct)
    return _kernel_error(level, right, np.ones(len(right)), width)


@weighted
def selective_mmce(confidence: Any, correct: Any, selection: Any, width: float = 0.2) -> Functional:
    """The normalized selective MMCE, with g_i the `selection` (n,): 0 or 1, or a soft selector's output in [0, 1].

    sqrt(sum_ij (c_i - r_i)(c_j - r_j) g_i g_j exp(-|r_i - r_j| / width) / sum_ij g_i g_j).

    >>> selective_mmce([0.8, 0.9], [1, 0], [1.0, 0.0])
    0.2
    """
    level, right = confidence_and_correct(confidence, correct)
    kept = checks.values("selection", selection)
    kept = checks.measured.unit_interval("selection", array(kept))
    checks.same_length("selection", kept, "confidence", level)
    if not bool(kept.any()):
        raise InputError("selection accepts nothing: it is 0 everywhere")
    return _kernel_error(level, right, array(kept), width)


def _kernel_error(confidence: Any, correct: Array, selection: Array, width: float) -> Functional:
    import torch  # here, so that tables are measured without it

    from calibrant.kernels import laplacian_quadratic_form, safe_sqrt

    checks.positive("width", width)
    order = np.argsort(array(confidence), kind="stable")
    points, kept = torch.from_numpy(array(confidence)[order]), selection[order]
    residual = (correct - array(confidence))[order]

    def under(weights: Array) -> Array:
        counts = weights[:, order] * kept
        forms = [laplacian_quadratic_form(points, torch.from_numpy(row * residual), width) for row in counts]
        return divide(array(safe_sqrt(torch.stack(forms))), counts.sum(1))

    return Functional((len(residual),), under)
