"""Standard normal noise on the CPU, faster than `Tensor.normal_` and driven by the same seed.

A Bayesian training step draws as many normals as the network has weights, which for wide layers and small batches is
most of its cost. Random bits from NumPy's SFC64, seeded from PyTorch's generator, become normals by inversion:

    noise = sqrt(2) erfinv(u),    u uniform on (-1, 1) with the resolution of float32.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

SQRT2 = math.sqrt(2.0)
# The largest int32 rounds up to 2^31 in float32; the factor keeps it below 1, where erfinv is finite.
_TO_UNIT = 2.0**-31 * (1 - 2.0**-24)


def random_bits() -> np.random.SFC64:
    """A source of bits whose seed is the next number of PyTorch's default generator."""
    return np.random.SFC64(int(torch.randint(2**63 - 1, (), device="cpu")))


def fill_unscaled_normal(out: Tensor, bits: np.random.SFC64) -> Tensor:
    """Fill `out` (flat, CPU, float32 or float64) with N(0, 1/2): times sqrt(2) it is standard normal."""
    if out.dtype == torch.float64:
        halves = np.random.Generator(bits).standard_normal(out.numel())
        return torch.mul(torch.from_numpy(halves), 1 / SQRT2, out=out)
    raw = bits.random_raw((out.numel() + 1) // 2).view(np.int32)[: out.numel()]
    return torch.mul(torch.from_numpy(raw), _TO_UNIT, out=out).erfinv_()
