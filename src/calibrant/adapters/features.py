"""Reading what enters a layer while the module runs."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class FeatureTap:
    """Within `with FeatureTap(module) as tap:`, `tap.take()` is the input (B, D) of a layer in the last forward pass.

    The layer is the `nn.Linear` that ran last, or the submodule named `layer`. Inputs with more than two dimensions
    are flattened to (B, D).
    """

    def __init__(self, module: nn.Module, layer: str | None = None) -> None:
        modules = dict(module.named_modules())
        if layer is not None and layer not in modules:
            raise ValueError(
                f"feature_layer {layer!r} is not a layer of the module; it has {', '.join(filter(None, modules))}"
            )
        self._layers = [m for m in modules.values() if isinstance(m, nn.Linear)] if layer is None else [modules[layer]]
        self._handles: list[RemovableHandle] = []
        self._taken: Tensor | None = None

    def __enter__(self) -> FeatureTap:
        self._handles = [layer.register_forward_pre_hook(self._keep) for layer in self._layers]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._taken = None

    def take(self) -> Tensor | None:
        """The features of the last forward pass, or None if no such layer ran."""
        taken, self._taken = self._taken, None
        return None if taken is None else taken.flatten(1)

    def _keep(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._taken = inputs[0]
