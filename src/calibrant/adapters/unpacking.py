"""What a batch is: where its inputs and its labels are.

| batch | inputs | labels |
|---|---|---|
| a tensor, or anything else not below | all of it | none |
| a tuple or list `(x, y, ...)` | `x` | `y`, if it is there |
| a mapping or data class, such as a tokenizer's `BatchEncoding` | all but labels, texts | the one named in `LABELS` |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError

LABELS = ("labels", "label", "target", "targets", "y")
SOLE = ("inputs", "input", "image", "images", "img", "x")
"""Names under which the only input of an example comes, beside which other entries say something about it."""


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """`value` if it is a mapping, the fields of a data class by name, else None."""
    if isinstance(value, Mapping):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def split_batch(batch: Any) -> tuple[Any, Any]:
    """(inputs, labels or None) of a batch or an example, by the table above.

    >>> split_batch({"input_ids": torch.tensor([[5, 6]]), "labels": torch.tensor([1])})
    ({'input_ids': tensor([[5, 6]])}, tensor([1]))
    """
    entries = as_mapping(batch)
    if entries is not None:
        labels = [entries[name] for name in LABELS if entries.get(name) is not None]
        return without_labels(entries), labels[0] if labels else None
    if isinstance(batch, (tuple, list)) and batch:
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def inputs_of(x: Any) -> Any:
    """The inputs in `x`, which is inputs, or a mapping or data class of inputs that may hold labels as well."""
    return split_batch(x)[0] if as_mapping(x) is not None else x


def without_labels(entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a mapping that are inputs: not labels, texts or None."""
    return {name: value for name, value in entries.items() if name not in LABELS and not _is_text(value)}


def class_indices(labels: Any) -> Tensor:
    """Labels (B,) or (B, 1) as int64 (B,); floating ones must be whole, as the 0 and 1 of one-logit networks are.

    >>> class_indices(torch.tensor([[0.0], [1.0]]))
    tensor([0, 1])
    """
    values = torch.as_tensor(labels)
    values = values[:, 0] if values.dim() == 2 and values.shape[1] == 1 else values
    if values.is_floating_point():
        visible = values.device.type == "cpu" and not torch.compiler.is_compiling()
        if visible and not bool((values == values.round()).all()):
            raise InputError("labels must be class indices, or 0.0 and 1.0 for a network with one logit")
        values = values.round()
    return values.long()


def _is_text(value: Any) -> bool:
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return first is None or isinstance(first, (str, bytes))
