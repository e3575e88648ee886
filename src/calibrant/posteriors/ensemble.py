"""K fixed members, evaluated member by member.

Where the members come from is one idea (`members.py`), running them another (`Ensemble`). A deterministic network is an
ensemble of one.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler

from calibrant import InputError
from calibrant.adapters.compiled import usable
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.trees import move_to
from calibrant.adapters.unpacking import class_indices, inputs_of, split_batch
from calibrant.posteriors.batched import Outputs, batched, confirmed, is_small
from calibrant.posteriors.collecting import Collected
from calibrant.posteriors.members import Member, Members, SeparateMembers, StoredMembers, parameter_key
from calibrant.posteriors.sharing import SharedRun
from calibrant.posteriors.substitution import Substitution
from calibrant.predictions import Predictions

FEW = 8  # operations, as those of one or two linear layers


class Ensemble(nn.Module):
    """K fixed members: `ensemble(x)` gives the logits (K, B, C), members first.

    Built by `sample` of any posterior, by `Ensemble.of` from a deterministic network, by `Ensemble.stack` from several
    of one architecture, by `Ensemble.separate` from networks of any kind. Members are in `eval()` mode; drawing them
    does not depend on it.

    Args:
        module: what the members run.
        members: the tensors in which they differ.

    `one_logit` says whether the module was seen to return one logit per example, which is read as two classes; None
    before the first run. While a member runs, its tensors are in the module in place of those of the others: threads
    take turns by `lock`, as those that share a `Predictor` do.

    >>> Ensemble.of(nn.Linear(3, 2))(torch.ones(5, 3)).shape
    torch.Size([1, 5, 2])
    """

    def __init__(self, module: nn.Module, members: Members) -> None:
        super().__init__()
        self.module = usable(module)
        self.members = members
        self.one_logit: bool | None = None
        self._shares: bool | None = None  # whether members have layers in common; None: not tried yet
        self._batches: bool | None = None  # whether they can be run in one pass
        self._differs_little = False  # whether only a few cheap operations differ
        self._cheap = False  # whether all members cost about as much as one
        self.lock = threading.RLock()
        self.eval()

    @classmethod
    def of(cls, module: nn.Module) -> Ensemble:
        """A deterministic network as an ensemble of one (of a copy, which later training does not change)."""
        return cls(copy.deepcopy(usable(module)), StoredMembers({}, 1))

    @classmethod
    def stack(cls, modules: Sequence[nn.Module]) -> Ensemble:
        """Several trained networks of one architecture: a deep ensemble."""
        if not modules:
            raise InputError("modules is empty")
        modules = [usable(module) for module in modules]
        # Not the state dict, which lists tied weights twice and leaves out buffers that are not persistent.
        states = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
        kinds = [{name: (tensor.shape, tensor.dtype) for name, tensor in state.items()} for state in states]
        if any(kind != kinds[0] for kind in kinds):
            raise InputError("modules must be of one architecture: their parameters differ in name, shape or type")
        differing = [name for name, own in states[0].items() if any(not own.equal(s[name]) for s in states[1:])]
        stacked = {name: torch.stack([state[name].detach() for state in states]) for name in differing}
        return cls(copy.deepcopy(modules[0]), StoredMembers(stacked, len(modules)))

    @classmethod
    def separate(cls, modules: Iterable[nn.Module]) -> Ensemble:
        """Networks of any architecture, each returning logits (B, C), or logits and features (B, D)."""
        copies = nn.ModuleList(copy.deepcopy(usable(module)) for module in modules)
        return cls(copies, SeparateMembers(len(copies)))

    def __len__(self) -> int:
        return len(self.members)

    @property
    def shared(self) -> nn.Module | None:
        """The one module that all members run, with the tensors in `stacked`; None if each has its own."""
        return None if isinstance(self.members, SeparateMembers) else self.module

    def stacked(self) -> dict[str, Tensor]:
        """The parameters and buffers (K, ...) of `shared` that differ from member to member, by name."""
        if isinstance(self.members, StoredMembers):
            return {name: self.members.stacked[parameter_key(name)] for name in self.members.names}
        weights = [self._weights(k) for k in range(len(self))]
        return {name: torch.stack([w[name] for w in weights]) for name in self.members.names}

    def network(self, k: int) -> nn.Module:
        """What member `k` runs, with its own tensors in place of those that differ."""
        return self.members.network(k, self.module)

    def as_callable(self, k: int, feature_layer: str | None = None) -> Member:
        """Member `k` as `member(x) -> logits, features`, without a copy of what is shared."""
        return self.callables(feature_layer)(k)

    def callables(self, feature_layer: str | None = None) -> Callable[[int], Member]:
        """K -> member `k` as a callable, for those who run several: the layers are looked through once."""
        if self.shared is None:
            return lambda k: Member(self.network(k), {}, feature_layer, self._note)
        tap, place = FeatureTap(self.shared, feature_layer), Substitution(self.shared, self.members.names)
        return lambda k: Member(place.module, self._weights(k), tap, self._note, place)

    def outputs(self, x: Any, feature_layer: str | None = None) -> Outputs:
        """Logits (B, C) and features (B, D) or None of each member.

        Layers up to the first tensor that differs are run once. A small batch goes through all members in one pass.
        """
        member_of, total = self.callables(feature_layer), len(self)
        first = member_of(0)

        def together() -> Outputs:
            return batched(lambda tensors: first.with_tensors(tensors)(x), self.stacked())

        if self._in_one_pass(x) and self._batches:
            try:
                return together()
            except Exception:  # a wrong input, or one that takes another path: member by member says so, or answers
                pass
        shared = self.shared_run(x)
        outputs = [(member_of(k) if k else first)(x, shared) for k in range(total)]
        self.learn(shared)
        if self._batches is None and self._in_one_pass(x):
            again = confirmed(together, outputs)
            self._batches = again is not None
            outputs = again or outputs  # by the path of the calls to come: an input is always answered alike
        return outputs

    def forward(self, x: Any) -> Tensor:
        """Logits (K, B, C)."""
        return torch.stack([logits for logits, _ in self.outputs(inputs_of(x))])

    def probabilities(self, x: Any) -> Tensor:
        """Probabilities (K, B, C) of each member."""
        return self.forward(x).softmax(-1)

    def mean_probabilities(self, x: Any) -> Tensor:
        """Probabilities (B, C) of the ensemble: the mean over members."""
        return self.probabilities(x).mean(0)

    def member(self, k: int) -> nn.Module:
        """Member `k` as an ordinary module, independent of this one."""
        module = copy.deepcopy(self.network(k))
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in self._weights(k).items():
                own[name].copy_(value)
        return module

    def stored(self, limit: float = math.inf) -> Ensemble:
        """The same ensemble with all members in memory: faster for small batches, K times the weights that differ.

        It stays as it is where these would take more than `limit` bytes.
        """
        if self.members.held or len(self) * sum(tensor.nbytes for tensor in self._weights(0).values()) > limit:
            return self
        kept = Ensemble(copy.deepcopy(self.module), StoredMembers(self.stacked(), len(self)))
        kept.one_logit = self.one_logit
        return kept

    @torch.no_grad()
    def predict(
        self,
        loader: Iterable[Any],
        *,
        feature_layer: str | None = None,
        device: torch.device | str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Predictions:
        """Predict everything that `loader` yields, features included, with one member in memory at a time.

        Args:
            loader: batches `x`, `(x, y)`, `(x, y, ...)`, or mappings with or without labels, as those of a tokenizer;
                in the same order at every pass.
            feature_layer: the name of the layer whose input is returned as features; by default the last linear layer.
            device: where to compute (the ensemble is moved there); results are on the CPU.
            progress: called with the number of inputs after each batch of each member.
        """
        if isinstance(loader, (torch.Tensor, np.ndarray)):
            raise InputError("loader must hold batches, not be one: pass a DataLoader, or a list with one batch, [x]")
        if iter(loader) is loader:
            raise InputError("loader can be read only once, but every member reads it: pass a DataLoader or a list")
        if isinstance(loader, DataLoader) and isinstance(loader.sampler, RandomSampler):
            raise InputError("loader shuffles, so its members' rows would not match: build it with shuffle=False")
        if device is not None:
            self.to(device)
        collected = Collected(len(self))
        for k, position, logits, features, y in self._passes(loader, feature_layer):
            y = class_indices(y) if self.one_logit and y is not None else y
            collected.add(k, position, logits, features, y)
            if progress is not None:
                progress(len(logits))
        return collected.predictions()

    def __getstate__(self) -> dict[str, Any]:
        """Without the lock, which can neither be copied nor sent."""
        return {name: value for name, value in self.__dict__.items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.lock = threading.RLock()

    def _note(self, one_logit: bool) -> None:
        self.one_logit = one_logit

    def _weights(self, k: int) -> dict[str, Tensor]:
        return self.members.weights(k, self.module)

    def _in_one_pass(self, x: Any) -> bool:
        """Whether the members go through one pass: a small batch, or little that differs; see docs/posterior.md."""
        if not self.members.held or len(self) == 1 or not self.members.names or self._batches is False:
            return False
        return (
            (is_small(x) or self._differs_little) and not torch.is_grad_enabled() and not torch.compiler.is_compiling()
        )

    def shared_run(self, x: Any) -> SharedRun | None:
        """What runs the layers that all members have in common once, for the batch `x`; None where there are none."""
        if self.shared is None or len(self) == 1 or self._shares is False or torch.compiler.is_compiling():
            return None
        return SharedRun(self.shared, self.members.names, x)

    def cost_one(self, x: Any) -> bool:
        """Whether all members together cost about as much as one, tried with the first batch `x`."""
        return len(self) > 1 and self._found_to_share((x,), self.callables()) and self._cheap

    def learn(self, shared: SharedRun | None) -> None:
        """Note what was seen while `shared` ran the first member."""
        if shared is None:
            return
        flat = all(tensor.dim() <= 3 for tensor in self.members.parameters())  # (K, ...): no convolutions
        self._shares, self._differs_little = shared.useful, bool(shared.useful) and flat and shared.own <= FEW
        size = sum(parameter.numel() for parameter in self.module.parameters())
        self._cheap = self._differs_little and len(self) * shared.own_weights <= size

    def _here(self, x: Any) -> Any:
        """`x` on the device of the ensemble."""
        parameter = next(self.parameters(), None)
        return x if parameter is None else move_to(x, parameter.device)

    def _passes(
        self, loader: Iterable[Any], feature_layer: str | None
    ) -> Iterator[tuple[int, int, Tensor, Tensor | None, Any]]:
        """(k, batch number, logits, features, labels): the data once if the members are in memory, else once for each.

        Members that have layers in common are kept in memory, too: what is drawn is only where they differ.
        """
        member_of = self.callables(feature_layer)
        first = None if self.members.held else next(iter(loader), None)
        if self.members.held or self._found_to_share(first, member_of):
            members = [member_of(k) for k in range(len(self))]
            for position, batch in enumerate(loader):
                x, y = split_batch(batch)
                x = self._here(x)
                shared = self.shared_run(x)
                for k, member in enumerate(members):
                    yield k, position, *member(x, shared), y
                self.learn(shared)
            return
        for k in range(len(self)):
            member = member_of(k)
            for position, batch in enumerate(loader):
                x, y = split_batch(batch)
                yield k, position, *member(self._here(x)), y

    def _found_to_share(self, batch: Any, member_of: Callable[[int], Member]) -> bool:
        """Whether the members have layers in common, tried with the first batch where that is possible at all."""
        if (
            self._shares is None
            and batch is not None
            and set(dict(self.module.named_parameters())) - set(self.members.names)
        ):
            x = self._here(split_batch(batch)[0])
            shared = self.shared_run(x)
            member_of(0)(x, shared)
            self.learn(shared)
        return bool(self._shares)
