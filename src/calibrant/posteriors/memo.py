"""The calls of the first member of an ensemble, which the next members find instead of making them again.

`sharing.py` says what is shared and why.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from calibrant.adapters.trees import tensors_in

_PLAIN: tuple[type, ...] = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis))
_PLAIN += (torch.dtype, torch.device, torch.memory_format, torch.layout)
_SEEN = (Tensor, *_PLAIN)
_ASKS = {"__get__", "dim", "size", "numel", "stride", "is_floating_point", "is_contiguous", "__len__", "type"}
_VALUES = {"item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__", "__array__", "equal", "allclose"}


@dataclass(slots=True)
class _Call:
    """What was called with which arguments, the versions of the tensors among them, and what it left behind."""

    leaves: list[Any]
    before: list[int]
    after: list[tuple[Tensor, int]]
    result: Any


class Memo(TorchFunctionMode):
    """The calls of the first member; while another one runs, their results."""

    def __init__(self, known: list[Tensor], differing: Iterable[Tensor], units: dict[nn.Module, bool]) -> None:
        super().__init__()
        self.units = units  # submodules, and whether they have parameters
        self.layers, self.own, self.own_weights, self.failed = 0, 0, 0.0, False
        self._known = {id(tensor): tensor for tensor in known}
        self._start = {id(tensor): tensor._version for tensor in known}
        self._versions = dict(self._start)
        self._calls: dict[Any, list[_Call]] = {}
        self._recording, self._told = True, False
        self._differing = {id(tensor): weakref.ref(tensor) for tensor in differing}
        self._given = set(self._differing)
        self._inside: dict[int, weakref.ref[Tensor]] | None = None
        self._adopted: set[int] = set()
        self._arguments: set[int] = set()
        self._foreign = False

    def replay(self) -> None:
        """Begin with another member."""
        self._recording, self._told, self._versions = False, False, dict(self._start)

    def current(self, tensors: list[Tensor]) -> bool:
        """Whether those of `tensors` that are shared hold what they should at this point."""
        return all(self._versions.get(id(t)) == t._version for t in tensors if id(t) in self._known)

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        """Units answer from memory: for the first member all of them, then those of which a call was kept."""
        units = [unit for unit in self.units if self._recording or unit in self._calls]
        old = [vars(unit).get("forward") for unit in units]
        for unit in units:
            vars(unit)["forward"] = self._wrapper(unit, unit.forward)
        try:
            yield
        finally:
            for unit, forward in zip(units, old):
                if forward is None:
                    del vars(unit)["forward"]
                else:
                    vars(unit)["forward"] = forward

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves: list[Any] = []
        _flatten(args, leaves)
        _flatten(kwargs, leaves)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if self._inside is not None:
            return self._within(func, args, kwargs, tensors)
        if self._recording:
            self._adopt(tensors)
        if all(id(tensor) in self._known for tensor in tensors):
            return self._shared(func, leaves, tensors, lambda: func(*args, **kwargs), layer=False)
        return self._own(func, args, kwargs, tensors)

    def _adopt(self, tensors: list[Tensor]) -> None:
        """Tensors that come from nowhere, such as global constants: the same object is the same for all members."""
        for tensor in tensors:
            if id(tensor) not in self._known and not _alive(self._differing, tensor):
                self._known[id(tensor)] = tensor
                self._start[id(tensor)] = self._versions[id(tensor)] = tensor._version
                self._adopted.add(id(tensor))

    def _wrapper(self, unit: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> Any:
            leaves: list[Any] = []
            _flatten(args, leaves)
            _flatten(kwargs, leaves)
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            seen = all(id(tensor) in self._known for tensor in tensors) and bool(tensors)
            if self._inside is not None or not seen or self._told or not _visible(leaves):
                return forward(*args, **kwargs)
            return self._shared(unit, leaves, tensors, lambda: forward(*args, **kwargs), layer=self.units[unit])

        return answer

    def _shared(
        self, key: Any, leaves: list[Any], tensors: list[Tensor], run: Callable[[], Any], *, layer: bool
    ) -> Any:
        """The result of a call of known tensors: kept by the first member, found by the others."""
        if not self._recording:
            found = self._find(key, leaves, tensors)
            if found is None:
                return self._again(key, tensors, run)
            self._versions.update((id(tensor), version) for tensor, version in found.after)
            return _rebuilt(found.result)
        before = [tensor._version for tensor in tensors]
        if isinstance(key, nn.Module):
            self._inside, self._foreign, self._arguments = {}, False, set(map(id, tensors))
            try:
                result = run()
            finally:
                self._inside = None
            keep = not self._foreign
        else:
            result, keep = run(), not any(isinstance(leaf, torch.Generator) for leaf in leaves)
            layer = any(isinstance(tensor, nn.Parameter) for tensor in tensors)
        out: list[Any] = []
        _flatten(result, out)
        left = [leaf for leaf in out if isinstance(leaf, Tensor)]
        if not keep or not left or not _visible(out):
            self.failed |= not keep and before != [tensor._version for tensor in tensors]
            return result
        after = [(tensor, tensor._version) for tensor in (*tensors, *left)]
        self._known.update((id(tensor), tensor) for tensor in left)
        self._calls.setdefault(key, []).append(_Call(leaves, before, after, _rebuilt(result)))
        self.layers += layer
        return result

    def _find(self, key: Any, leaves: list[Any], tensors: list[Tensor]) -> _Call | None:
        versions = [self._versions.get(id(tensor)) for tensor in tensors]
        return next((c for c in self._calls.get(key, ()) if c.before == versions and _same(c.leaves, leaves)), None)

    def _again(self, key: Any, tensors: list[Tensor], run: Callable[[], Any]) -> Any:
        """A call of known tensors that was not kept: what it reads of them must be what it would have been."""
        if getattr(key, "__name__", "") not in _ASKS and not self.current(tensors):
            self.failed = True
        return self._watched(run, tensors)

    def _own(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """An operation on tensors that differ from member to member."""
        known = [tensor for tensor in tensors if id(tensor) in self._known]
        if not self._recording and not self.current(known):
            self.failed = True
        name = getattr(func, "__name__", "")
        self._told |= name in _VALUES
        if self._recording and name not in _ASKS:
            self.own += 1
            read = [tensor for tensor in tensors if id(tensor) in self._given or isinstance(tensor, nn.Parameter)]
            self.own_weights += sum(math.inf if tensor.dim() > 2 else tensor.numel() for tensor in read)
        result = self._watched(lambda: func(*args, **kwargs), known)
        if self._recording:
            self._differing.update((id(tensor), weakref.ref(tensor)) for tensor in tensors_in(result))
        return result

    def _watched(self, run: Callable[[], Any], known: list[Tensor]) -> Any:
        before = [tensor._version for tensor in known]
        result = run()
        if before != [tensor._version for tensor in known]:
            self.failed = True
        return result

    def _within(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """An operation in a submodule that may be shared: noted if it reads what others may not find the same."""
        assert self._inside is not None
        kept = []
        for tensor in tensors:
            if id(tensor) in self._known and id(tensor) not in self._arguments:
                kept.append(tensor)
                self._foreign |= id(tensor) in self._adopted
            elif id(tensor) not in self._known and not _alive(self._inside, tensor):
                self._foreign = True
        result = self._watched(lambda: func(*args, **kwargs), kept)
        if isinstance(result, Tensor):
            self._inside[id(result)] = weakref.ref(result)
        elif not isinstance(result, _PLAIN):
            self._inside.update((id(tensor), weakref.ref(tensor)) for tensor in tensors_in(result))
        return result


def shareable(module: nn.Module, differing: list[Tensor]) -> dict[nn.Module, bool]:
    """The submodules that may be shared, and whether they have parameters.

    They hold none of the tensors `differing`, under whatever names, and no submodule inside has a hook, which has to
    be called for every member.
    """
    ids, units = {id(tensor) for tensor in differing}, dict[nn.Module, bool]()
    seen: dict[nn.Module, tuple[bool, bool, bool]] = {}

    def visit(part: nn.Module) -> tuple[bool, bool, bool]:
        if part in seen:
            return seen[part]
        own = [tensor for tensor in (*part._parameters.values(), *part._buffers.values()) if tensor is not None]
        inside = [visit(child) for child in part._modules.values() if child is not None]
        same = ids.isdisjoint(map(id, own)) and all(child[0] for child in inside)
        trained = any(tensor is not None for tensor in part._parameters.values()) or any(child[1] for child in inside)
        hooked = any(child[2] for child in inside)
        if same and not hooked and part is not module and not isinstance(part, torch.jit.ScriptModule):
            units[part] = trained
        seen[part] = same, trained, hooked or bool(part._forward_hooks or part._forward_pre_hooks)
        return seen[part]

    visit(module)
    return units


def _alive(tensors: dict[int, weakref.ref[Tensor]], tensor: Tensor) -> bool:
    """Whether `tensor` is one of `tensors`, and not a new one in the place of one that is gone."""
    found = tensors.get(id(tensor))
    return found is not None and found() is tensor


def _flatten(value: Any, leaves: list[Any]) -> None:
    """Append the leaves of nested arguments to `leaves`, with marks for what holds them."""
    if isinstance(value, (tuple, list)):
        leaves.append(len(value))
        for entry in value:
            _flatten(entry, leaves)
    elif isinstance(value, dict):
        leaves.append(len(value))
        for key, entry in value.items():
            leaves.append(key)
            _flatten(entry, leaves)
    elif isinstance(value, slice):
        leaves.extend((slice, value.start, value.stop, value.step))
    else:
        leaves.append(value)


def _visible(leaves: list[Any]) -> bool:
    """Whether there are no objects among `leaves` that could hide something."""
    return all(isinstance(leaf, _SEEN) or leaf is slice for leaf in leaves)


def _same(kept: list[Any], given: list[Any]) -> bool:
    if len(kept) != len(given):
        return False
    for a, b in zip(kept, given):
        if a is not b and not (type(a) is type(b) and isinstance(a, _PLAIN) and a == b):
            return False
    return True


def _rebuilt(value: Any) -> Any:
    """`value` with containers of its own, so that nobody else's changes reach them."""
    if type(value) in (tuple, list):
        return type(value)(_rebuilt(entry) for entry in value)
    if type(value) is dict:
        return {key: _rebuilt(entry) for key, entry in value.items()}
    return copy.copy(value) if isinstance(value, (dict, list)) else value
