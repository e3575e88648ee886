"""All members in one pass over stacked tensors, for batches so small that calling the layers is what takes the time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

MAX_VALUES, MAX_VALUES_OF_ONE = 1024, 4096
"""The largest batch, in numbers, that is run so, and the largest single input (docs/posterior.md: measured)."""

Outputs = list[tuple[Tensor, Tensor | None]]


def is_small(inputs: Any) -> bool:
    """Whether `inputs` are one tensor of a few numbers; token numbers stand for much more."""
    if not isinstance(inputs, Tensor) or inputs.dtype in (torch.int32, torch.int64) or inputs.dim() == 0:
        return False
    return inputs.numel() <= (MAX_VALUES_OF_ONE if len(inputs) == 1 else MAX_VALUES)


def batched(
    call: Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor | None]], stacked: dict[str, Tensor]
) -> Outputs:
    """What `call` returns for each member's tensors out of `stacked` (K, ...), by operations on all K at once.

    What does not depend on these tensors is computed once. Raises whatever `torch.func.vmap` does where the module
    cannot be run in this way.
    """
    features_too = False

    def one(tensors: dict[str, Tensor]) -> tuple[Tensor, ...]:
        nonlocal features_too
        logits, features = call(tensors)
        features_too = features is not None
        return (logits,) if features is None else (logits, features)

    parts = vmap(one)(stacked)
    return list(zip(parts[0], parts[1] if features_too else [None] * len(parts[0])))


def confirmed(call: Callable[[], Outputs], wanted: Outputs) -> Outputs | None:
    """What `call`, which runs the members in one pass, gives; None where it warns, fails or differs from `wanted`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = call()
    except Exception:
        return None
    alike = all(_close(a, b) for pair in zip(found, wanted) for a, b in zip(*pair)) and len(found) == len(wanted)
    return found if alike else None


def _close(found: Tensor | None, wanted: Tensor | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    scale = float(wanted[wanted.isfinite()].abs().max()) if bool(wanted.isfinite().any()) else 1.0
    return torch.allclose(found, wanted, rtol=1e-3, atol=1e-4 * scale, equal_nan=True)
