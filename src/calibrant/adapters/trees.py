"""Inputs of several tensors: tuples, mappings and data classes, handled as one tensor is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """`value` with `change` applied to every tensor in it, however deep; a mapping becomes a `dict`.

    >>> map_tensors({"input_ids": torch.ones(2), "name": "a"}, lambda tensor: 3 * tensor)
    {'input_ids': tensor([3., 3.]), 'name': 'a'}
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(entry, change) for key, entry in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(entry, change) for entry in value))
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(entry, change) for entry in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return dataclasses.replace(value, **{name: map_tensors(entry, change) for name, entry in fields.items()})
    return value


def move_to(value: Any, device: torch.device | str) -> Any:
    """`value` with all of its tensors on `device`; an object with a `to` of its own is asked to move itself."""
    if not isinstance(value, (Tensor, Mapping, tuple, list)) and callable(getattr(value, "to", None)):
        return value.to(device)
    return map_tensors(value, lambda tensor: tensor.to(device, non_blocking=True))


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in `value`, in its order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, note)
    return found


def row_count(inputs: Any) -> int:
    """The number B of examples in `inputs`, whose tensors must have one row per example.

    >>> row_count({"input_ids": torch.zeros(3, 7), "attention_mask": torch.zeros(3, 7)})
    3
    """
    sizes = {len(tensor) if tensor.dim() else 0 for tensor in tensors_in(inputs)}
    if len(sizes) != 1 or sizes == {0}:
        found = f"of {sorted(sizes)} rows" if sizes else f"a {type(inputs).__name__} without any"
        raise InputError(
            f"inputs must hold tensors with one row per example, but they are {found}; check the collate_fn"
        )
    return sizes.pop()


def take_rows(inputs: Any, index: Any) -> Any:
    """The examples `index` of `inputs`."""
    return map_tensors(inputs, lambda tensor: tensor[index])


def row_shape(inputs: Any) -> Any:
    """The shape of one example: a tuple, or a `dict` of them by name.

    >>> row_shape(torch.zeros(3, 7, 2)), row_shape({"input_ids": torch.zeros(3, 7)})
    ((7, 2), {'input_ids': (7,)})
    """
    if isinstance(inputs, Mapping):
        return {key: row_shape(entry) for key, entry in inputs.items()}
    shapes = tuple(tuple(tensor.shape[1:]) for tensor in tensors_in(inputs))
    return shapes[0] if isinstance(inputs, Tensor) else shapes


def join_rows(parts: Sequence[Any]) -> Any:
    """`parts` of one form and one shape per example, as one batch.

    >>> join_rows([{"x": torch.zeros(1, 2)}, {"x": torch.ones(1, 2)}])
    {'x': tensor([[0., 0.], [1., 1.]])}
    """
    if isinstance(parts[0], Mapping):
        return {key: join_rows([part[key] for part in parts]) for key in parts[0]}
    rest = [iter(tensors_in(part)) for part in parts]
    return map_tensors(parts[0], lambda _: torch.cat([next(tensors) for tensors in rest]))
