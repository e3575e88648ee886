"""Errors of a network that was given inputs which it does not take, as one sentence on what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError

_SHAPES = re.compile(r"cannot be multiplied|expected input|must match|size mismatch|expected .* got", re.IGNORECASE)
"""What PyTorch says where an input does not have the shape that a layer expects."""


@contextmanager
def input_errors(inputs: Any, name: str = "x") -> Iterator[None]:
    """Say in a sentence that the network takes no images as integers, or no inputs of this shape; see the example.

    >>> with input_errors(torch.zeros(4, 3), "X"):
    ...     torch.nn.Linear(2, 2)(torch.zeros(4, 3))
    Traceback (most recent call last):
    calibrant.InputError: X has inputs of shape (3,), which the network does not take (mat1 and mat2 shapes ...)
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        if not isinstance(inputs, Tensor) or isinstance(error, torch.OutOfMemoryError):
            raise
        if inputs.dtype == torch.uint8:
            raise InputError(
                f"{name} holds uint8 images, which this network does not take as they are; give the predictor a"
                f" transform=ImageTransform(mean=..., std=...), or scale them first ({reason})"
            ) from None
        if not _SHAPES.search(reason):
            raise
        shape = tuple(inputs.shape[1:])
        last = inputs.dim() == 4 and shape[2] in (1, 3) and shape[0] not in (1, 3)
        hint = f"; images are (channels, height, width): {name}.permute(0, 3, 1, 2) puts the channels first" * last
        raise InputError(
            f"{name} has inputs of shape {shape}, which the network does not take ({reason}){hint}"
        ) from None
