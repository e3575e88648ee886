"""Running a module with other tensors in place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


class Substitution:
    """`torch.func.functional_call` for many calls: where the tensors called `names` are is looked up once.

    A tensor that is in several places of the module (tied weights) is replaced in all of them.

    >>> double = Substitution(module := nn.Linear(1, 1, bias=False), ["weight"])
    >>> double({"weight": torch.tensor([[2.0]])}, (torch.tensor([[3.0]]),), {})
    tensor([[6.]])
    """

    def __init__(self, module: nn.Module, names: Iterable[str]) -> None:
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        wanted = {id(own[name]): name for name in names if name in own}
        self.module = module
        self._places: list[tuple[dict[str, Any], str, str]] = []
        for part in module.modules():
            for table in (part._parameters, part._buffers):
                self._places += [(table, key, wanted[id(t)]) for key, t in table.items() if id(t) in wanted]

    def replaces(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether `tensors`, by name, are in the places now: not so where a part of the module was exchanged since."""
        return all(table.get(key) is tensors[name] for table, key, name in self._places)

    def __call__(self, tensors: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The output of the module for `args` and `kwargs`."""
        if tensors and torch.compiler.is_compiling():  # which knows that function
            return functional_call(self.module, dict(tensors), args, dict(kwargs))
        old = [table[key] for table, key, _ in self._places]
        try:
            for table, key, name in self._places:
                table[key] = tensors[name]
            return self.module(*args, **kwargs)
        finally:
            for (table, key, _), tensor in zip(self._places, old):
                table[key] = tensor
