"""Input checks: one sentence that names the argument, says what is wrong and what to do.

What computes with tensors calls `floating`, `unit_interval` and the others here, which make a tensor of what they are
given. What measures calls those of `measured`, which leave a tensor a tensor and make a NumPy array of anything else:
a table of predictions is measured without importing torch.

Checks of shape and dtype always run. Checks of values (range, NaN) read the tensor, which on an accelerator would
wait for the device and under `torch.compile` would break the graph; functions that run inside a training step
therefore ask `values_visible` first, functions that measure do not.

May import: files.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.files import DivergedError

if TYPE_CHECKING:
    from torch import Tensor

Held = TypeVar("Held")


def values_visible(tensor: Tensor) -> bool:
    """Whether looking at the values of `tensor` is free: eager, on the CPU and not under a `torch.func` transform."""
    import torch

    return (
        tensor.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def is_tensor(value: Any) -> bool:
    """Whether `value` is a tensor, told without importing torch."""
    return hasattr(value, "detach") and hasattr(value, "layout")


def array(name: str, value: Any) -> NDArray[Any]:
    """`value` (array, series or nested list of numbers) as an array that torch could take, without a copy if possible.

    >>> array("scores", np.ma.masked_array([0.1, 0.2], mask=[False, True]))
    Traceback (most recent call last):
    calibrant.InputError: scores holds masked entries; leave out the rows that have them
    """
    if np.ma.is_masked(value):
        raise InputError(f"{name} holds masked entries; leave out the rows that have them")
    try:
        result = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} must be rectangular: its rows have different lengths") from None
    if result.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold numbers, not {result.dtype}")
    native = np.float64 if result.dtype == np.longdouble else result.dtype.newbyteorder("=")
    return np.require(result, native, "C")


def tensor(name: str, value: Any) -> Tensor:
    """`value` (tensor, array or nested list of numbers) as a tensor, without a copy where that is possible."""
    import torch

    if isinstance(value, torch.Tensor):
        return _dense(name, value)
    result = array(name, value)
    return torch.from_numpy(result if result.flags.writeable else result.copy())


def values(name: str, value: Any) -> Any:
    """A tensor as it is, anything else as an array."""
    return _dense(name, value) if is_tensor(value) else array(name, value)


def _dense(name: str, value: Tensor) -> Tensor:
    import torch

    if value.is_nested:
        raise InputError(f"{name} is a nested tensor; concatenate its parts first")
    if value.layout is not torch.strided:
        raise InputError(f"{name} is sparse; make it dense first with .to_dense()")
    if value.is_quantized or (value.is_floating_point() and value.dtype.itemsize == 1):
        raise InputError(f"{name} is of {value.dtype}, in which nothing is computed; convert it to float32 first")
    if value.device.type == "meta":
        raise InputError(f"{name} is on the meta device, where tensors have no values; move the model to a real device")
    return value


def shaped(name: str, value: Held, *, dims: int | None = None) -> Held:
    """`value` if it is non-empty and has `dims` dimensions."""
    shape = _shape(value)
    if dims is not None and len(shape) != dims:
        raise InputError(f"{name} must have {dims} dimension{'s' if dims != 1 else ''}, not shape {shape}")
    if 0 in shape:
        raise InputError(f"{name} is empty")
    return value


def same_length(name: str, value: Any, other: str, reference: Any) -> None:
    """Refuse two tensors or arrays whose first dimensions differ."""
    if value.shape[0] != reference.shape[0]:
        raise InputError(f"{name} has {value.shape[0]} entries, but {other} has {reference.shape[0]}")


def finite(name: str, value: Held) -> Held:
    """`value` if it holds neither NaN nor infinity."""
    held: Any = value
    if not bool((held.isfinite() if is_tensor(held) else np.isfinite(held)).all()):
        raise InputError(f"{name} holds NaN or infinity")
    return value


class Checks(Generic[Held]):
    """Checks of what `convert(name, value)` makes of an argument."""

    def __init__(self, convert: Callable[[str, Any], Held]) -> None:
        self.convert = convert

    def floating(self, name: str, value: Any, *, dims: int | None = None) -> Held:
        """Non-empty and floating point; integers are refused, because they are mostly labels passed by mistake."""
        result = self.convert(name, value)
        if not _is_floating(result):
            raise InputError(f"{name} must be floating point, not {_dtype(result)}")
        return shaped(name, result, dims=dims)

    def unit_interval(self, name: str, value: Any, *, dims: int | None = 1) -> Held:
        """Floating point with values in [0, 1]."""
        result = finite(name, self.floating(name, value, dims=dims))
        held: Any = result
        low, high = held.min(), held.max()
        if bool(low < 0) or bool(high > 1):
            raise InputError(f"{name} must lie in [0, 1]; it reaches from {float(low)} to {float(high)}")
        return result

    def correctness(self, name: str, value: Any) -> Held:
        """Zeros and ones (bool, integer or floating) in one dimension, as float32 or wider."""
        result: Any = shaped(name, self.convert(name, value), dims=1)
        if not _is_floating(result):
            result = result.float() if is_tensor(result) else result.astype(np.float64)
        if not bool(((result == 0) | (result == 1)).all()):
            raise InputError(f"{name} must hold only 0 (wrong) and 1 (right)")
        checked: Held = result
        return checked

    def labels(self, name: str, value: Any, classes: int | None = None, *, values: bool = True) -> Held:
        """Class indices below `classes` of any integer type in one dimension, as int64."""
        given: Any = shaped(name, self.convert(name, value), dims=1)
        if not _is_integer(given):
            raise InputError(f"{name} must be integer class indices, not {_dtype(given)}")
        result = given.long() if is_tensor(given) else given.astype(np.int64, copy=False)
        if values and classes is not None:
            outside = (result < 0) | (result >= classes)
            if bool(outside.any()):
                bad = int(given[outside][0])
                raise InputError(f"{name} holds {bad}, but with {classes} classes labels run from 0 to {classes - 1}")
        checked: Held = result
        return checked

    def probabilities(self, name: str, value: Any) -> Held:
        """(N, C), floating point, whose rows are distributions; rounding of 1e-3 in the sum is let pass."""
        result = self.unit_interval(name, value, dims=2)
        held: Any = result
        off = abs(held.sum(1) - 1)
        if bool((off > 1e-3).any()):
            row = int(off.argmax())
            raise InputError(
                f"{name} must sum to 1 in every row; row {row} sums to {float(held[row].sum()):.4g}"
                " (logits? apply softmax first)"
            )
        return result


_tensors: Checks[Tensor] = Checks(tensor)
floating, unit_interval, correctness = _tensors.floating, _tensors.unit_interval, _tensors.correctness
labels, probabilities = _tensors.labels, _tensors.probabilities
measured: Checks[Any] = Checks(values)
"""The same checks for what measures: tensors stay tensors, everything else becomes a NumPy array."""


def logits_and_labels(logits: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Logits (B, C) and labels (B,) of a training step, checked as far as that is free."""
    scores = floating("logits", logits, dims=2)
    visible = values_visible(scores)
    index = labels("labels", target, scores.shape[1], values=visible)
    same_length("labels", index, "logits", scores)
    not_diverged(scores)
    return scores, index


def not_diverged(logits: Tensor) -> None:
    """Refuse logits (B, C) of a training step that are no prediction, where looking is free.

    That is NaN, or infinity as the largest of a row; classes that are ruled out by minus infinity are let pass.
    """
    if values_visible(logits) and not bool(logits.amax(1).isfinite().all()):
        raise DivergedError(
            "logits hold NaN or infinity: the training has diverged; lower the learning rate or clip gradients"
        )


def positive(name: str, value: float) -> float:
    """`value` if it is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite, not {value}")
    return float(value)


def temperature(name: str, value: float) -> float:
    """`value` if it is a finite number from 1e-30 on; what is divided by less does not stay finite."""
    if positive(name, value) < 1e-30:
        raise InputError(f"{name} must be at least 1e-30, not {value}")
    return float(value)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _dtype(value: Any) -> Any:
    return value.dtype


def _is_floating(value: Any) -> bool:
    return bool(value.is_floating_point()) if is_tensor(value) else value.dtype.kind == "f"


def _is_integer(value: Any) -> bool:
    kind = str(value.dtype).removeprefix("torch.")
    return kind.startswith(("int", "uint"))
