"""How a module takes its inputs: by position, or by the names of its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn

from calibrant import InputError
from calibrant.adapters.compiled import uncompiled
from calibrant.adapters.unpacking import SOLE, as_mapping, without_labels

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def arguments(module: nn.Module, inputs: Any) -> Arguments:
    """The arguments with which `module` is called on `inputs`.

    - A mapping whose entries the module's `forward` names, as those of a tokenizer: by name.
    - A mapping with a single entry, or with one of the names of a sole input, such as "image": that entry.
    - Any other mapping, to a module that takes a mapping: as it is.
    - A tuple or list of as many inputs as `forward` requires, if these are several: one by one.
    - Anything else: as the one argument.

    >>> class Scaled(nn.Module):
    ...     def forward(self, x, scale=1.0):
    ...         return scale * x
    >>> arguments(Scaled(), {"x": 1, "scale": 2}), arguments(Scaled(), {"image": 1})
    (((), {'x': 1, 'scale': 2}), ((1,), {}))
    """
    entries = as_mapping(inputs)
    if entries is not None:
        return _of_mapping(module, inputs, without_labels(entries))
    if isinstance(inputs, (tuple, list)) and len(inputs) > 1 and len(_required(_parameters(module))) == len(inputs):
        return tuple(inputs), {}
    return (inputs,), {}


def call(module: nn.Module, inputs: Any) -> Any:
    """The output of `module` for `inputs` of any form."""
    args, kwargs = arguments(module, inputs)
    return module(*args, **kwargs)


def called_with(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Arguments:
    """The arguments of a call, of which a batch that is the only one is spread as `arguments` says."""
    return arguments(module, args[0]) if len(args) == 1 and not kwargs else (args, dict(kwargs))


def _of_mapping(module: nn.Module, inputs: Any, entries: dict[str, Any]) -> Arguments:
    parameters = _parameters(module)
    known = [name for name in entries if name in parameters]
    if entries and (len(known) == len(entries) or (_takes_any(parameters) and set(entries).isdisjoint(SOLE))):
        return (), entries
    sole = [entries[name] for name in SOLE if name in entries]
    if len(entries) == 1 or (sole and len(_required(parameters)) <= 1):
        return ((sole or list(entries.values()))[0],), {}
    if not known:
        return (inputs,), {}
    unknown = next(name for name in entries if name not in parameters)
    raise InputError(
        f"the batch has an entry {unknown!r}, which the forward of {type(module).__name__} does not take; leave it out,"
        " or wrap the module in one that does"
    )


def _parameters(module: nn.Module) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(uncompiled(module).forward).parameters


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    return [name for name, one in parameters.items() if one.kind in _BY_POSITION and one.default is one.empty]


def _takes_any(parameters: Mapping[str, inspect.Parameter]) -> bool:
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
