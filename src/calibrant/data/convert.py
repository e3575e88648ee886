"""Arrays of any origin in the three forms that the rest works on: uint8 images, float32 tables, int64 tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from calibrant.data.arrays import DataError

CHANNELS = (1, 3)


def channels_last(shape: tuple[int, ...], layout: str | None) -> bool:
    """Whether a four-dimensional `shape` is (N, H, W, C): as `layout` says, else by which side is 1 or 3.

    Where both or neither could be the channels, they come first.

    >>> channels_last((100, 32, 32, 3), None), channels_last((100, 3, 32, 32), None)
    (True, False)
    """
    if layout is not None:
        return layout == "nhwc"
    return shape[3] in CHANNELS and shape[1] not in CHANNELS


def as_inputs(array: NDArray[Any], name: str, layout: str | None = None) -> Tensor:
    """`array` as inputs: what it holds is read off its dimensions and type.

    | array | becomes |
    |---|---|
    | four dimensions | images (N, C, H, W): integers 0 to 255 as uint8, floats as float32 |
    | three dimensions, uint8 | gray images (N, 1, H, W) |
    | two dimensions, integers other than uint8 | tokens (N, L), int64 |
    | everything else of numbers | float32, in its own shape; one dimension becomes a table of one column |
    """
    if layout not in (None, "nchw", "nhwc"):
        raise DataError(f"layout must be nchw or nhwc, not {layout!r}")
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold numbers, not {array.dtype}")
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim == 3 and array.dtype == np.uint8:
        array = array[:, None]
    elif array.ndim == 4 and channels_last(array.shape, layout):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim == 4 and array.dtype.kind in "iu":
        if array.size and (array.min() < 0 or array.max() > 255):
            raise DataError(f"{name} holds images of integers beyond 0 to 255; scale them or save them as floats")
        return torch.from_numpy(np.array(array, np.uint8, order="C"))
    if array.ndim == 2 and array.dtype.kind in "iu" and array.dtype != np.uint8:
        return torch.from_numpy(np.array(array, np.int64, order="C"))
    values = torch.from_numpy(np.array(array, np.float32, order="C"))
    if not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values.flatten(1)).all(1)).nonzero()[0])
        raise DataError(f"{name} holds NaN or infinity in row {row}; remove or fill in such rows")
    return values


def encode_labels(values: NDArray[Any], name: str, known: tuple[str, ...] | None = None) -> Any:
    """Labels (N,) as (int64 tensor, class names or None).

    Integers stay as they are; strings are numbered in the order of `known`, by default their sorted distinct values.

    >>> encode_labels(np.array(["dog", "cat", "dog"]), "y")
    (tensor([1, 0, 1]), ('cat', 'dog'))
    """
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"{name} must be one label per row, not of shape {values.shape}")
    values = values.astype(str) if values.dtype.kind == "S" else values
    if values.dtype.kind == "U" or (values.dtype.kind == "O" and all(isinstance(value, str) for value in values)):
        classes = tuple(sorted(set(values.tolist()))) if known is None else known
        number = {label: index for index, label in enumerate(classes)}
        unknown = next((value for value in values.tolist() if value not in number), None)
        if unknown is not None:
            raise DataError(f"{name} holds {unknown!r}, which is not among the classes {', '.join(classes)}")
        return torch.tensor([number[value] for value in values.tolist()]), classes
    if values.dtype.kind not in "iub":
        raise DataError(f"{name} must hold class indices or class names, not {values.dtype}")
    return torch.from_numpy(values.astype(np.int64)), None
