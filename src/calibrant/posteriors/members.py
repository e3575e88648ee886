"""The members of an ensemble: one of them as a callable, and where the tensors in which they differ come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.calling import arguments
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.outputs import as_classes, is_one_logit, raw_logits, returned_features
from calibrant.posteriors.sharing import SharedRun
from calibrant.posteriors.substitution import Substitution


class Member:
    """One member: `member(x)` gives its logits (B, C), and the features (B, D) from the same pass or None.

    Args:
        module: returns logits, or a pair of logits and features of its own; see `adapters.outputs` for other forms.
        tensors: parameters and buffers by name that take the place of the module's.
        feature_layer: the layer whose input the features are; by default the last linear layer. Members that run one
            module may share what reads it.
        note: told at every call whether the module has one logit per example, which is read as two classes.
        place: puts `tensors` in place; members that run one module may share it.

    >>> logits, features = Member(nn.Linear(3, 2))(torch.ones(4, 3))
    >>> logits.shape, features.shape
    (torch.Size([4, 2]), torch.Size([4, 3]))
    """

    def __init__(
        self,
        module: nn.Module,
        tensors: Mapping[str, Tensor] | None = None,
        feature_layer: str | FeatureTap | None = None,
        note: Callable[[bool], None] | None = None,
        place: Substitution | None = None,
    ) -> None:
        self.module, self.tensors, self._note = module, dict(tensors or {}), note
        self._place = place or Substitution(module, self.tensors)
        self._tap = feature_layer if isinstance(feature_layer, FeatureTap) else FeatureTap(module, feature_layer)

    def __call__(self, x: Any, shared: SharedRun | None = None) -> tuple[Tensor, Tensor | None]:
        """Logits (B, C) and features (B, D); what members have in common is run in `shared`."""
        with self._tap as tap:
            output = run(self._place, self.tensors, x, shared)
            raw = raw_logits(output)
            if self._note is not None:
                self._note(is_one_logit(raw))
            logits, features = as_classes(raw, x), returned_features(output)
            return logits, tap.take(logits) if features is None else features

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> Member:
        """The same with other tensors."""
        return Member(self.module, tensors, self._tap, self._note, self._place)


def run(place: Substitution, tensors: Mapping[str, Tensor], x: Any, shared: SharedRun | None = None) -> Any:
    """The output of the module with `tensors` in place of its own, for inputs of any form."""
    args, kwargs = arguments(place.module, x)
    if shared is None or not tensors:
        return place(tensors, args, kwargs)
    return shared(lambda: place(tensors, args, kwargs), tensors.values())


class Members(nn.Module):
    """Where the members of an ensemble come from: K of them, which run one module with different tensors.

    `names` are the parameters and buffers that differ; `held` says whether all of them are in memory.
    """

    held = True

    def __init__(self, names: list[str], count: int) -> None:
        super().__init__()
        check_count(count)
        self.names, self.count = names, count

    def __len__(self) -> int:
        return self.count

    def network(self, k: int, module: nn.Module) -> nn.Module:
        """What member `k` runs: `module`, the one that the ensemble holds."""
        return module

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """The parameters and buffers of member `k` that differ from those of other members."""
        raise NotImplementedError


class PosteriorMembers(Members):
    """Members drawn on demand: weight = mean + std * noise(seed, k). Holds one member at a time, whatever K is.

    The noise is drawn on the CPU, so that a seed names the same members on every device.
    """

    held = False

    def __init__(self, std: dict[str, Tensor], count: int, seed: int) -> None:
        super().__init__(list(std), count)
        member_generator(seed, 0)  # refuses a seed now rather than when members are drawn
        self.std, self.seed = _frozen(std), seed

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """The weights of member `k` around the means that `module` holds."""
        generator = member_generator(self.seed, k)
        weights = {}
        for name in self.names:
            mean, std = module.get_parameter(name), self.std[parameter_key(name)]
            noise = cpu_normal(mean.shape, generator).to(std)
            weights[name] = torch.addcmul(mean.detach(), std, noise)
        return weights


class StoredMembers(Members):
    """Members held in full: tensors (K, ...) by parameter or buffer name; what is not named is shared."""

    def __init__(self, stacked: dict[str, Tensor], count: int) -> None:
        super().__init__(list(stacked), count)
        self.stacked = _frozen(stacked)

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """The weights of member `k`."""
        return {name: self.stacked[parameter_key(name)][k] for name in self.names}


class SeparateMembers(Members):
    """Members that are networks of their own, of any architecture: the ensemble holds an `nn.ModuleList` of them."""

    def __init__(self, count: int) -> None:
        super().__init__([], count)

    def network(self, k: int, module: nn.Module) -> nn.Module:
        """The network of member `k`."""
        return module.get_submodule(str(k))

    def weights(self, k: int, module: nn.Module) -> dict[str, Tensor]:
        """Nothing: the network has its own weights."""
        return {}


def check_count(n: int) -> None:
    """Refuse an ensemble without members."""
    if n < 1:
        raise InputError(f"n must be at least 1, not {n}")


def member_generator(seed: int, k: int, purpose: str = "") -> torch.Generator:
    """The source of what is random in member `k` of the ensemble with `seed`, on the CPU."""
    if seed < 0:
        raise InputError(f"seed must be at least 0, not {seed}")
    state = np.random.SeedSequence([seed, k, *purpose.encode()]).generate_state(1, np.uint64)
    return torch.Generator("cpu").manual_seed(int(state[0] >> np.uint64(1)))


def cpu_normal(size: Sequence[int], generator: torch.Generator) -> Tensor:
    """Standard normal noise in float32, on the CPU whatever the default device and type are: a seed's, everywhere."""
    return torch.randn(tuple(size), generator=generator, dtype=torch.float32, device="cpu")


_TAKEN = frozenset(dir(nn.ParameterDict()))


def parameter_key(name: str) -> str:
    """A parameter's name as a key of a ParameterDict, in which neither dots nor names of its methods are allowed."""
    return f"/{name}" if name in _TAKEN else name.replace(".", "/")


def _frozen(tensors: Mapping[str, Tensor]) -> nn.ParameterDict:
    """`tensors` by key, moved and copied with the module that holds them, and never trained."""
    return nn.ParameterDict(
        {parameter_key(name): nn.Parameter(value, requires_grad=False) for name, value in tensors.items()}
    )
