"""Confidence bins of equal width: (a, b], the first also holds 0, nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.functional import Array

MOST_BINS = 1_000_000


def checked_bins(bins: int) -> int:
    """`bins` if it is a whole number from 1 to 1,000,000; arrays of so many are made."""
    if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= MOST_BINS:
        raise InputError(f"bins must be a whole number from 1 to {MOST_BINS:,}, not {bins}")
    return bins


def bin_edges(bins: int) -> Array:
    """The edges 0, 1 / M, ..., 1 in float64."""
    return np.arange(checked_bins(bins) + 1) / bins


def bin_index(confidence: Any, bins: int) -> Any:
    """The bin 0 .. bins - 1 of each confidence: an array of an array, and of a tensor a tensor on its device.

    The edges are rounded to the dtype of `confidence`, so that 0.2 lies on the edge 3 / 15 in any precision.

    >>> bin_index(np.array([0.0, 0.2, 0.2001, 1.0], np.float32), 15)
    array([ 0,  2,  3, 14])
    """
    inner = bin_edges(bins)[1:-1]
    if not checks.is_tensor(confidence):
        return np.searchsorted(inner.astype(confidence.dtype), confidence)
    import torch

    return torch.bucketize(confidence.detach().contiguous(), torch.from_numpy(inner).to(confidence))
