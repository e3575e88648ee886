"""Dropout layers that drop at every call, or always the same units, and how they get into any module.

A layer's units are what it drops: the channels of images and volumes (B, C, H, W), (B, C, D, H, W), the features of
tables and sequences (B, D), (B, T, D), and always the channels (B, C, ...) for `nn.Dropout1d`, `2d` and `3d`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from calibrant import InputError

_BY_KIND: dict[type[nn.Module], Callable[..., Tensor]] = {
    nn.Dropout: F.dropout,
    nn.Dropout1d: F.dropout1d,
    nn.Dropout2d: F.dropout2d,
    nn.Dropout3d: F.dropout3d,
}


class FreshDropout(nn.Module):
    """Ordinary dropout noise of the kind of `layer`, in `train()` and in `eval()` alike.

    The buffer `units` is the number of units that the layer has been given, 0 before the first call.
    """

    units: Tensor

    def __init__(self, name: str, layer: _DropoutNd, rate: float | None = None) -> None:
        super().__init__()
        self.name, self.rate = name, layer.p if rate is None else rate
        self.drop, self.channels = _BY_KIND[type(layer)], not isinstance(layer, nn.Dropout)
        self._size = 0
        self.register_buffer("units", torch.zeros((), dtype=torch.int64))
        self.register_forward_pre_hook(_seen)

    def forward(self, x: Tensor) -> Tensor:
        """`x` with units of every example set to 0 and the others scaled up."""
        size = x.shape[_unit_axis(x, self.channels)]
        if self._size not in (0, size):
            raise InputError(
                f"dropout layer {self.name} is given {self._size} units and then {size}; use one layer for each"
            )
        self._size = size
        self.units.fill_(size)
        return self.drop(x, self.rate, training=True)

    def extra_repr(self) -> str:
        """The rate, for `print`."""
        return f"rate={self.rate}"


class UnitMask(nn.Module):
    """x * mask, the same for every example: `mask` (U,) is 0 for units that are dropped, 1 / (1 - rate) for others.

    >>> layer = UnitMask(3)
    >>> layer.mask.copy_(torch.tensor([2.0, 0.0, 2.0]))
    tensor([2., 0., 2.])
    >>> layer(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 0., 6.]])
    """

    mask: Tensor

    def __init__(self, units: int, *, channels: bool = False) -> None:
        super().__init__()
        self.channels = channels
        self.register_buffer("mask", torch.ones(units))
        self.register_forward_pre_hook(_seen)

    def forward(self, x: Tensor) -> Tensor:
        """`x` without the units that are dropped."""
        trailing = x.dim() - 2 if _unit_axis(x, self.channels) == 1 else 0
        return x * self.mask.to(x.dtype).view(-1, *(1,) * trailing)

    def extra_repr(self) -> str:
        """The number of units, for `print`."""
        return f"units={len(self.mask)}"


class DropoutLinear(nn.Linear):
    """`linear` behind dropout: the same parameters under the same names, and the layer `dropout`."""

    def __init__(self, linear: nn.Linear, dropout: nn.Module) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.dropout = dropout
        self.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """The linear map of what dropout leaves of `x`; features are read before it, so they are whole."""
        return F.linear(self.dropout(x), self.weight, self.bias)


def dropout_layers(module: nn.Module) -> dict[str, _DropoutNd]:
    """The dropout layers of `module` by name, but for those whose rate is 0; kinds that have no units are refused."""
    layers = {name: m for name, m in module.named_modules() if isinstance(m, _DropoutNd) and m.p > 0}
    for name, layer in layers.items():
        if type(layer) not in _BY_KIND:
            kind, kinds = type(layer).__name__, ", ".join(kind.__name__ for kind in _BY_KIND)
            raise InputError(f"dropout layer {name} is a {kind}, but must be one of {kinds}; replace it")
        if not 0 <= layer.p < 1:
            raise InputError(f"dropout layer {name} has rate {layer.p}, which drops everything; lower it")
    return layers


def with_dropout(module: nn.Module, name: str, rate: float) -> nn.Module:
    """`module` with dropout before its linear layer called `name`."""
    linear = module.get_submodule(name)
    if type(linear) is not nn.Linear:
        kind = type(linear).__name__
        raise InputError(f"dropout cannot be put before {name}, which is a {kind}; put nn.Dropout into module yourself")
    return replaced(module, linear, DropoutLinear(linear, nn.Dropout(rate)))


def replaced(module: nn.Module, old: nn.Module, new: nn.Module) -> nn.Module:
    """`module` with `new` wherever `old` is, in place; `new` itself where `module` is `old`."""
    if module is old:
        return new
    for owner in list(module.modules()):
        for name, child in list(owner._modules.items()):
            if child is old and owner is not new:
                setattr(owner, name, new)
    return module


def mask_names(module: nn.Module) -> set[str]:
    """The buffers of `module` that are masks."""
    return {f"{name}.mask".lstrip(".") for name, layer in module.named_modules() if isinstance(layer, UnitMask)}


def with_masks(module: nn.Module, stacked: Mapping[str, Tensor]) -> nn.Module:
    """`module` as it was built, with a mask wherever `stacked` holds masks (K, U) that it has no place for.

    A mask is in place of a dropout layer, or before the linear layer that `DropoutLinear` took the place of. Whatever
    fits neither is left to whoever loads `stacked` to refuse.
    """
    known = dict(module.named_parameters()) | dict(module.named_buffers())
    for name, masks in stacked.items():
        layer, _, last = name.rpartition(".")
        if last != "mask" or name in known or masks.dim() != 2:
            continue
        before = layer.rpartition(".")[0]
        layers: dict[str, Any] = dict(module.named_modules())
        if layer not in layers and type(layers.get(before)) is nn.Linear:
            module = with_dropout(module, before, 0.0)
            layers = dict(module.named_modules())
        old = layers.get(layer)
        if old is not None and type(old) in _BY_KIND:
            mask = UnitMask(masks.shape[1], channels=not isinstance(old, nn.Dropout))
            module = replaced(module, old, mask)
    return module


def _unit_axis(x: Tensor, channels: bool) -> int:
    return 1 if channels or x.dim() > 3 else -1


def _seen(layer: nn.Module, inputs: Any) -> None:
    """Does nothing; but where a hook hangs, `nn.TransformerEncoderLayer` does not take its path without dropout."""
