"""Data in memory: one tensor of inputs, one of labels; and the channel statistics that normalize the inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from calibrant import InputError, checks
from calibrant.adapters.trees import join_rows, row_count, take_rows, tensors_in


class DataError(InputError):
    """Data that is missing, damaged or of a wrong form: one sentence that says what to do."""


@dataclass(frozen=True, eq=False)
class ArrayData(Dataset[Any]):
    """Inputs and labels in memory; also a torch `Dataset`.

    `inputs`: images stay uint8 (N, C, H, W), tables are float32 (N, D), token sequences int64 (N, L); or several such
    tensors by name, as a tokenizer gives them.
    `labels`: int64 (N,), or None where there are none (as for outliers). `classes`: their names, if known.

    >>> data = ArrayData(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    >>> len(data), data.num_classes, data.subset([2, 0]).labels
    (3, 2, tensor([1, 0]))
    """

    inputs: Any
    labels: Tensor | None = None
    classes: tuple[str, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        parts = tensors_in(self.inputs)
        for part in parts:
            if part.dim() < 2 and isinstance(self.inputs, Tensor):
                raise DataError(f"inputs must have a row per example, not shape {tuple(part.shape)}")
            checks.shaped("inputs", part)
        row_count(self.inputs)
        if self.labels is None:
            return
        checks.same_length("labels", self.labels, "inputs", parts[0])
        index = checks.labels("labels", self.labels, None if self.classes is None else len(self.classes))
        if bool((index < 0).any()):
            raise DataError(f"labels hold {int(index.min())}, but they must be class indices from 0 on")
        object.__setattr__(self, "labels", index)

    def __len__(self) -> int:
        return row_count(self.inputs)

    def __getitem__(self, index: int) -> Any:
        """(input, label), or the input alone where there are no labels, so that torch's collation takes both."""
        inputs = take_rows(self.inputs, index)
        return inputs if self.labels is None else (inputs, self.labels[index])

    def take(self, indices: Tensor) -> tuple[Any, Tensor | None]:
        """Inputs and labels of the examples `indices` (B,), as one batch."""
        return take_rows(self.inputs, indices), None if self.labels is None else self.labels[indices]

    def subset(self, indices: Tensor | Sequence[int]) -> ArrayData:
        """The examples `indices`, in that order."""
        inputs, labels = self.take(torch.as_tensor(indices, dtype=torch.long))
        return ArrayData(inputs, labels, self.classes, self.name)

    @property
    def num_classes(self) -> int:
        """The number of classes: of the names if there are names, else one more than the largest label."""
        if self.classes is not None:
            return len(self.classes)
        if self.labels is None:
            raise DataError(
                f"{self.name or 'this data'} has no labels; give labeled data, such as a folder with subfolders"
            )
        return int(self.labels.max()) + 1

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the shapes, types and values: equal data, equal fingerprint."""
        digest = hashlib.sha256()
        if isinstance(self.inputs, Mapping):
            digest.update(json.dumps(list(self.inputs)).encode())
        for tensor in (*tensors_in(self.inputs), self.labels):
            if tensor is not None:
                digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def concatenate(parts: Sequence[ArrayData], name: str = "") -> ArrayData:
    """`parts` one after the other; labels are kept where every part has them and the class names agree."""
    keep = all(part.labels is not None for part in parts) and len({part.classes for part in parts}) == 1
    labels = torch.cat([part.labels for part in parts if part.labels is not None]) if keep else None
    return ArrayData(join_rows([part.inputs for part in parts]), labels, parts[0].classes if keep else None, name)


def channel_statistics(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every channel (N, C, ...) or column (N, D), float32 (C,).

    uint8 images are taken on the scale 0 to 1. Where a channel is constant, the standard deviation is given as 1, so
    that dividing by it is harmless. Two passes in float64, in blocks of bounded memory.

    >>> channel_statistics(torch.tensor([[0.0, 5.0], [2.0, 5.0]]))
    (tensor([1., 5.]), tensor([1., 1.]))
    """
    if not (inputs.is_floating_point() or inputs.dtype == torch.uint8):
        raise DataError(f"inputs of type {inputs.dtype} are tokens, not quantities: they cannot be normalized")
    dims = [dim for dim in range(inputs.dim()) if dim != 1]
    count = inputs.numel() // inputs.shape[1]
    blocks = torch.split(inputs, 1024)
    mean = torch.stack([block.sum(dims, dtype=torch.float64) for block in blocks]).sum(0) / count
    center = mean.view(-1, *[1] * (inputs.dim() - 2))
    var = torch.stack([(block.double() - center).square().sum(dims) for block in blocks]).sum(0) / count
    std = torch.where(var.sqrt() > 1e-9 * mean.abs(), var.sqrt(), torch.ones_like(var))
    if inputs.dtype == torch.uint8:
        mean, std = mean / 255, torch.where(var > 0, std / 255, std)
    return mean.float(), std.float()
