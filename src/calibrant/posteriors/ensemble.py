"""K fixed members of one architecture, evaluated member by member.

Where the members' weights come from is one idea (`PosteriorMembers`, `StoredMembers`), running them another
(`Ensemble`). A deterministic network is an ensemble of one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, RandomSampler

from calibrant.adapters.features import FeatureTap
from calibrant.predictions import Predictions


class PosteriorMembers(nn.Module):
    """Members drawn on demand: weight = mean + std * noise(seed, k). Holds one member at a time, whatever K is.

    The noise is drawn on the CPU, so that a seed names the same members on every device.
    """

    def __init__(self, std: dict[str, Tensor], count: int, seed: int) -> None:
        super().__init__()
        if count < 1:
            raise ValueError(f"n must be at least 1, not {count}")
        self.std = nn.ParameterDict(
            {parameter_key(name): nn.Parameter(value, requires_grad=False) for name, value in std.items()}
        )
        self.names, self.count, self.seed = list(std), count, seed

    def __len__(self) -> int:
        return self.count

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """The weights of member `k` around the means that `module` holds."""
        state = np.random.SeedSequence([self.seed, k]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        weights = {}
        for name in self.names:
            mean, std = module.get_parameter(name), self.std[parameter_key(name)]
            noise = torch.randn(mean.shape, generator=generator, dtype=torch.float32).to(std)
            weights[name] = torch.addcmul(mean.detach(), std, noise)
        return weights


class StoredMembers(nn.Module):
    """Members held in full: tensors (K, ...) by parameter or buffer name; what is not named is shared."""

    def __init__(self, stacked: dict[str, Tensor], count: int) -> None:
        super().__init__()
        self.names, self.count = list(stacked), count
        self.stacked = nn.ParameterDict(
            {parameter_key(name): nn.Parameter(value, requires_grad=False) for name, value in stacked.items()}
        )

    def __len__(self) -> int:
        return self.count

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """The weights of member `k`."""
        return {name: self.stacked[parameter_key(name)][k] for name in self.names}


class Ensemble(nn.Module):
    """K fixed members: `ensemble(x)` gives the logits (K, B, C), members first.

    Built by `MeanField.sample`, by `Ensemble.of` from a deterministic network or by `Ensemble.stack` from several.
    Members are in `eval()` mode; drawing them does not depend on it.

    >>> Ensemble.of(nn.Linear(3, 2))(torch.ones(5, 3)).shape
    torch.Size([1, 5, 2])
    """

    def __init__(self, module: nn.Module, members: PosteriorMembers | StoredMembers) -> None:
        super().__init__()
        self.module = module
        self.members = members
        self.eval()

    @classmethod
    def of(cls, module: nn.Module) -> Ensemble:
        """A deterministic network as an ensemble of one (of a copy, which later training does not change)."""
        return cls(copy.deepcopy(module), StoredMembers({}, 1))

    @classmethod
    def stack(cls, modules: Sequence[nn.Module]) -> Ensemble:
        """Several trained networks of one architecture: a deep ensemble."""
        if not modules:
            raise ValueError("modules is empty")
        # Not the state dict, which lists tied weights twice and leaves out buffers that are not persistent.
        states = [{**dict(module.named_parameters()), **dict(module.named_buffers())} for module in modules]
        if any({n: t.shape for n, t in s.items()} != {n: t.shape for n, t in states[0].items()} for s in states):
            raise ValueError("modules must be of one architecture: their parameters differ in name or shape")
        stacked = {name: torch.stack([state[name].detach() for state in states]) for name in states[0]}
        return cls(copy.deepcopy(modules[0]), StoredMembers(stacked, len(modules)))

    def __len__(self) -> int:
        return len(self.members)

    def forward(self, x: Any) -> Tensor:
        """Logits (K, B, C)."""
        return torch.stack([functional_call(self.module, self._weights(k), (x,)) for k in range(len(self))])

    def probabilities(self, x: Any) -> Tensor:
        """Probabilities (K, B, C) of each member."""
        return self.forward(x).softmax(-1)

    def mean_probabilities(self, x: Any) -> Tensor:
        """Probabilities (B, C) of the ensemble: the mean over members."""
        return self.probabilities(x).mean(0)

    def member(self, k: int) -> nn.Module:
        """Member `k` as an ordinary module, independent of this one."""
        module = copy.deepcopy(self.module)
        state = module.state_dict(keep_vars=True)
        with torch.no_grad():
            for name, value in self._weights(k).items():
                state[name].copy_(value)
        return module

    def stored(self) -> Ensemble:
        """The same ensemble with all members in memory: faster for small batches, K times the weights."""
        if isinstance(self.members, StoredMembers):
            return self
        weights = [self._weights(k) for k in range(len(self))]
        stacked = {name: torch.stack([w[name] for w in weights]) for name in self.members.names}
        return Ensemble(copy.deepcopy(self.module), StoredMembers(stacked, len(self)))

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
            loader: batches `x`, `(x, y)` or `(x, y, ...)`; in the same order at every pass.
            feature_layer: the name of the layer whose input is returned as features; by default the last linear layer.
            device: where to compute (the ensemble is moved there); results are on the CPU.
            progress: called with the number of inputs after each batch of each member.
        """
        if iter(loader) is loader:
            raise ValueError("loader can be read only once, but every member reads it: pass a DataLoader or a list")
        if isinstance(loader, DataLoader) and isinstance(loader.sampler, RandomSampler):
            raise ValueError("loader shuffles, so its members' rows would not match: build it with shuffle=False")
        if device is not None:
            self.to(device)
        collected = _Collected(len(self))
        with FeatureTap(self.module, feature_layer) as tap:
            for k, position, weights, (x, y) in self._passes(loader):
                logits = functional_call(self.module, weights, (self._here(x),))
                collected.add(k, position, logits, tap.take(), y)
                if progress is not None:
                    progress(len(logits))
        return collected.predictions()

    def _weights(self, k: int) -> dict[str, Tensor]:
        return self.members.weights(k, self.module)

    def _here(self, x: Any) -> Any:
        """`x` on the device of the ensemble."""
        parameter = next(self.parameters(), None)
        return x.to(parameter.device, non_blocking=True) if parameter is not None and hasattr(x, "to") else x

    def _passes(self, loader: Iterable[Any]) -> Iterator[tuple[int, int, dict[str, Tensor], tuple[Any, Any]]]:
        """(member, batch number, weights, batch): the data once if the members are in memory, else once a member."""
        if isinstance(self.members, StoredMembers):
            members = [self._weights(k) for k in range(len(self))]
            for position, batch in enumerate(loader):
                for k, weights in enumerate(members):
                    yield k, position, weights, _inputs_and_labels(batch)
            return
        for k in range(len(self)):
            weights = self._weights(k)
            for position, batch in enumerate(loader):
                yield k, position, weights, _inputs_and_labels(batch)


class _Collected:
    """Batches of predictions by member, joined at the end."""

    def __init__(self, members: int) -> None:
        self.logits: list[list[Tensor]] = [[] for _ in range(members)]
        self.features: list[list[Tensor]] = [[] for _ in range(members)]
        self.labels: list[Tensor] = []

    def add(self, k: int, position: int, logits: Tensor, features: Tensor | None, labels: Any) -> None:
        """Take in one batch of member `k`."""
        if logits.dim() != 2:
            raise ValueError(f"the module must return logits (B, C), not shape {tuple(logits.shape)}")
        self.logits[k].append(logits.cpu())
        if features is not None:
            self.features[k].append(features.cpu())
        if labels is None:
            return
        labels = torch.as_tensor(labels).cpu()
        if k == 0:
            self.labels.append(labels)
        elif not torch.equal(labels, self.labels[position]):
            raise ValueError("loader changes its order from one pass to the next: build it with shuffle=False")

    def predictions(self) -> Predictions:
        """Everything, members first."""
        if not self.logits[0]:
            raise ValueError("loader is empty")
        return Predictions.from_logits(
            torch.stack([torch.cat(parts) for parts in self.logits]),
            torch.stack([torch.cat(parts) for parts in self.features]) if self.features[0] else None,
            torch.cat(self.labels) if self.labels else None,
        )


def _inputs_and_labels(batch: Any) -> tuple[Any, Any]:
    """The inputs of a batch, and its labels where it has any."""
    if isinstance(batch, (tuple, list)):
        return batch[0], batch[1] if len(batch) > 1 else None
    return batch, None


def parameter_key(name: str) -> str:
    """A parameter's name as a key of a ParameterDict, in which dots are not allowed."""
    return name.replace(".", "/")
