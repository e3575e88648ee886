"""Input checks: one sentence that names the argument, says what is wrong and what to do.

Checks of shape and dtype always run. Checks of values (range, NaN) read the tensor, which on an accelerator would
wait for the device and under `torch.compile` would break the graph; functions that run inside a training step
therefore ask `values_visible` first, functions that measure do not.

May import: files.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from calibrant.files import DivergedError


def values_visible(tensor: Tensor) -> bool:
    """Whether looking at the values of `tensor` is free: eager, on the CPU and not under a `torch.func` transform."""
    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def tensor(name: str, value: Any) -> Tensor:
    """`value` (tensor, array or nested list of numbers) as a tensor, without a copy where that is possible."""
    if isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be rectangular: its rows have different lengths") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, not {array.dtype}")
    array = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def floating(name: str, value: Any, *, dims: int | None = None) -> Tensor:
    """A non-empty floating-point tensor; integers are refused, because they are mostly labels passed by mistake."""
    result = tensor(name, value)
    if not result.is_floating_point():
        raise ValueError(f"{name} must be floating point, not {result.dtype}")
    return shaped(name, result, dims=dims)


def shaped(name: str, value: Tensor, *, dims: int | None = None) -> Tensor:
    """`value` if it is non-empty and has `dims` dimensions."""
    if dims is not None and value.dim() != dims:
        raise ValueError(f"{name} must have {dims} dimension{'s' if dims != 1 else ''}, not shape {tuple(value.shape)}")
    if value.numel() == 0:
        raise ValueError(f"{name} is empty")
    return value


def same_length(name: str, value: Tensor, other: str, reference: Tensor) -> None:
    """Refuse two tensors whose first dimensions differ."""
    if value.shape[0] != reference.shape[0]:
        raise ValueError(f"{name} has {value.shape[0]} entries, but {other} has {reference.shape[0]}")


def finite(name: str, value: Tensor) -> Tensor:
    """`value` if it holds neither NaN nor infinity."""
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} holds NaN or infinity")
    return value


def unit_interval(name: str, value: Any, *, dims: int | None = 1) -> Tensor:
    """A floating tensor with values in [0, 1]."""
    result = finite(name, floating(name, value, dims=dims))
    if bool((result < 0).any()) or bool((result > 1).any()):
        raise ValueError(f"{name} must lie in [0, 1]; it reaches from {float(result.min())} to {float(result.max())}")
    return result


def correctness(name: str, value: Any) -> Tensor:
    """A one-dimensional tensor of zeros and ones (bool, integer or floating), as float32 or wider."""
    result = shaped(name, tensor(name, value), dims=1)
    result = result if result.is_floating_point() else result.to(torch.float32)
    if not bool(((result == 0) | (result == 1)).all()):
        raise ValueError(f"{name} must hold only 0 (wrong) and 1 (right)")
    return result


def labels(name: str, value: Any, classes: int | None = None, *, values: bool = True) -> Tensor:
    """A one-dimensional integer tensor of class indices below `classes`, as int64."""
    result = shaped(name, tensor(name, value), dims=1)
    if result.is_floating_point() or result.is_complex() or result.dtype == torch.bool:
        raise ValueError(f"{name} must be integer class indices, not {result.dtype}")
    if values and classes is not None and bool(((result < 0) | (result >= classes)).any()):
        bad = result[(result < 0) | (result >= classes)][0]
        raise ValueError(f"{name} holds {int(bad)}, but with {classes} classes labels run from 0 to {classes - 1}")
    return result.long()


def probabilities(name: str, value: Any) -> Tensor:
    """A (N, C) floating tensor whose rows are distributions; rounding of 1e-3 in the sum is let pass."""
    result = unit_interval(name, value, dims=2)
    off = (result.sum(1) - 1).abs()
    if bool((off > 1e-3).any()):
        row = int(off.argmax())
        raise ValueError(
            f"{name} must sum to 1 in every row; row {row} sums to {float(result[row].sum()):.4g}"
            " (logits? apply softmax first)"
        )
    return result


def logits_and_labels(logits: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and labels (B,) of a training step, checked as far as that is free."""
    scores = floating("logits", logits, dims=2)
    visible = values_visible(scores)
    index = labels("labels", target, scores.shape[1], values=visible)
    same_length("labels", index, "logits", scores)
    not_diverged(scores)
    return scores, index


def not_diverged(logits: Tensor) -> None:
    """Refuse logits of a training step that hold NaN, where looking is free."""
    if values_visible(logits) and bool(torch.isnan(logits).any()):
        raise DivergedError("logits hold NaN: the training has diverged; lower the learning rate or clip gradients")


def positive(name: str, value: float) -> float:
    """`value` if it is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, not {value}")
    return float(value)
