"""Confidence bins of equal width: (a, b], the first also holds 0, nothing is lost."""

from __future__ import annotations

import torch
from torch import Tensor


def checked_bins(bins: int) -> int:
    """`bins` if it is a whole number of at least 1."""
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, not {bins}")
    return bins


def bin_edges(bins: int) -> Tensor:
    """The edges 0, 1 / M, ..., 1 in float64."""
    return torch.arange(checked_bins(bins) + 1, dtype=torch.float64) / bins


def bin_index(confidence: Tensor, bins: int) -> Tensor:
    """The bin 0 .. bins - 1 of each confidence.

    The edges are rounded to the dtype of `confidence`, so that 0.2 lies on the edge 3 / 15 in any precision.

    >>> bin_index(torch.tensor([0.0, 0.2, 0.2001, 1.0]), 15)
    tensor([ 0,  2,  3, 14])
    """
    inner = bin_edges(bins)[1:-1].to(confidence.dtype).to(confidence.device)
    return torch.bucketize(confidence.detach().contiguous(), inner)
