"""Modules behind `torch.compile`, and modules whose layers have no sizes yet."""

from __future__ import annotations

from torch import nn

from calibrant import InputError


def uncompiled(module: nn.Module) -> nn.Module:
    """The module that `torch.compile` wrapped, which shares its parameters; any other module as it is.

    Drawing weights and reading features need the module itself. What comes out of us can be compiled again.
    """
    inner = module._modules.get("_orig_mod")
    return module if inner is None else uncompiled(inner)


def usable(module: nn.Module) -> nn.Module:
    """`module` without `torch.compile`'s wrapper; refused if it has lazy layers that have not seen a batch."""
    module = uncompiled(module)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if nn.parameter.is_lazy(tensor):
            raise InputError(
                f"module has the lazy parameter {name}: run it once on a batch first, which gives it a size"
            )
    return module
