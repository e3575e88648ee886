"""What is the same for all members of an ensemble, computed once per batch.

Members that run one module with different tensors do the same things in the same order, up to the first operation that
reads one of these tensors, and often beside it. The rule is that of data flow: an operation on tensors that are the
same objects, not written to in between, has the same result. While the first member runs, results are kept of

- operations all of whose tensors are known: inputs, parameters and buffers that do not differ, and results kept before;
- calls of submodules that read nothing else. The next members do not enter these submodules at all.

Nothing is assumed of the module. Whatever is not certain is computed for each member: after random numbers, after a
write to a known tensor by an operation that differs, and where the first member took another path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from calibrant.adapters.compiled import uncompiled
from calibrant.adapters.trees import tensors_in
from calibrant.posteriors.memo import Memo, shareable

T = TypeVar("T")


class SharedRun:
    """`shared(run, tensors)` calls `run`, which runs the module with a member's own `tensors`, or a part of it.

    For the first member that is all of it, for the others what differs.

    Args:
        module: what all members run.
        differing: names of its parameters and buffers that differ from member to member.
        inputs: the batch, the same object for all members.

    `useful` says, after the first member, whether a layer with parameters is shared, `own` how many operations on
    tensors are not, and `own_weights` how many numbers they read of parameters and of what differs, each of which is
    used once per example or step; infinity where one is not, as in a convolution.
    """

    def __init__(self, module: nn.Module, differing: Iterable[str], inputs: Any) -> None:
        self.module, self.inputs = module, inputs
        self.differing = frozenset(differing)
        self.useful: bool | None = None
        self.own, self.own_weights = 0, 0.0
        self._memo: Memo | None = None

    def __call__(self, run: Callable[[], T], tensors: Iterable[Tensor]) -> T:
        """What `run` returns."""
        if torch.is_inference_mode_enabled():  # in which tensors do not say whether they were written to
            with torch.inference_mode(False), torch.no_grad():
                return self(run, tensors)
        if self.useful is None:
            return self._first(run, tensors)
        if self._memo is None:
            return run()
        self._memo.replay()
        try:
            with self._memo.wrapped(), self._memo:
                result = run()
            failed = not self._memo.current(tensors_in(result))
        except Exception:
            if not self._memo.failed:
                raise
            failed = True
        if not failed and not self._memo.failed:
            return result
        self._memo, self.useful = None, False
        return run()

    def _first(self, run: Callable[[], T], tensors: Iterable[Tensor]) -> T:
        self.useful = False
        own = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        known = [tensor for name, tensor in own.items() if name not in self.differing]
        known += [value for layer in self.module.modules() for value in vars(layer).values() if type(value) is Tensor]
        known += tensors_in(self.inputs)
        if _compiled(self.module) or any(tensor.is_inference() for tensor in known):
            return run()
        memo = Memo(known, tensors, shareable(self.module, [own[name] for name in self.differing if name in own]))
        before = _random_state(self.inputs)
        with memo.wrapped(), memo:
            result = run()
        if all(torch.equal(old, new) for old, new in zip(before, _random_state(self.inputs))) and not memo.failed:
            self._memo = memo
            self.useful, self.own, self.own_weights = memo.layers > 0, memo.own, memo.own_weights
        return result


def _compiled(module: nn.Module) -> bool:
    """Whether a part of `module` is compiled, whose code no mode can see into."""
    return any(uncompiled(m) is not m or getattr(m, "_compiled_call_impl", None) is not None for m in module.modules())


def _random_state(inputs: Any) -> list[Tensor]:
    """The states of the generators that the module may draw from."""
    devices = {tensor.device for tensor in tensors_in(inputs)}
    askers = ((device, getattr(getattr(torch, device.type, None), "get_rng_state", None)) for device in devices)
    return [torch.get_rng_state(), *(ask(device) for device, ask in askers if ask)]
