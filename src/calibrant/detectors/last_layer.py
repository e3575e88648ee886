"""The last layer of a network, recovered from what goes into it and comes out of it."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant import InputError

_TOLERANCE = 0.01  # of the spread of the logits; half precision leaves less than half of it


def last_layer(features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """W (C, D) and b (C,) in float64 on the CPU with logits = features W^T + b, by least squares.

    Exact, but for rounding, where the logits (N, C) are linear in the features (N, D). Directions in which the features
    do not vary get no weight: of all solutions, W is the one with the smallest norm.

    >>> features = torch.tensor([[0.0], [1.0], [2.0]])
    >>> [value.tolist() for value in last_layer(features, 3 * features + 1)]
    [[[3.0]], [1.0]]
    """
    count, size = features.shape
    if count < size + 2:
        raise InputError(
            f"features of {count} training examples cannot determine a last layer of {size} inputs; give at least"
            f" {size + 2}"
        )
    points, values = features.cpu().double(), logits.cpu().double()
    mean, level = points.mean(0), values.mean(0)
    weight = torch.linalg.lstsq(points - mean, values - level, driver="gelsd").solution
    spread = (values - level).square().mean().sqrt()
    residual = ((points - mean) @ weight - (values - level)).square().mean().sqrt()
    if float(residual) > _TOLERANCE * float(spread):
        raise InputError(
            f"logits are not linear in the features: least squares leave {float(residual / spread):.1%} of their"
            " spread; set the feature layer to the last linear layer, or use another detector"
        )
    return weight.T.contiguous(), level - mean @ weight
