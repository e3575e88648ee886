"""Reading what enters a layer while the module runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from calibrant import InputError


class FeatureTap:
    """Within `with FeatureTap(module) as tap:`, `tap.take()` is the input (B, D) of a layer in the last forward pass.

    The layer is the `nn.Linear` that ran last, or the submodule named `layer`. Inputs with more than two dimensions
    are flattened to (B, D), but for those of a linear layer that runs at every position of a sequence, (B, T, D): see
    `at_one_position`. A layer that PEFT adapts counts as one layer with what was added to it.
    """

    def __init__(self, module: nn.Module, layer: str | None = None) -> None:
        modules = dict(module.named_modules())
        if layer is not None and layer not in modules:
            raise InputError(
                f"feature_layer {layer!r} is not a layer of the module; it has {', '.join(filter(None, modules))}"
            )
        self._layers = _linear_layers(modules) if layer is None else [modules[layer]]
        self._handles: list[RemovableHandle] = []
        self._taken: tuple[nn.Module, Tensor, Any] | None = None

    def __enter__(self) -> FeatureTap:
        self._handles = [layer.register_forward_hook(self._keep) for layer in self._layers]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._taken = None

    def take(self, logits: Tensor | None = None) -> Tensor | None:
        """The features of the last forward pass, which ended in `logits`, or None if no such layer ran."""
        taken, self._taken = self._taken, None
        if taken is None:
            return None
        layer, entered, left = taken
        if is_linear(layer) and entered.dim() == 3:
            return at_one_position(entered, left, logits)
        return entered.flatten(1)

    def _keep(self, layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor):
            self._taken = layer, inputs[0], output


def at_one_position(entered: Tensor, left: Tensor, logits: Tensor | None) -> Tensor:
    """Features (B, D) of a linear layer that turned `entered` (B, T, D) into `left` (B, T, C) on the way to `logits`.

    Those at the position whose output is the logits, as in a decoder that classifies at its last token; where there
    is none, the mean over positions, as where the outputs are averaged.

    >>> entered = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> at_one_position(entered, 10 * entered, torch.tensor([[20.0]]))
    tensor([[2.]])
    >>> at_one_position(entered, 10 * entered, None)
    tensor([[2.]])
    """
    mean = entered.mean(1)
    if logits is None or logits.dim() != 2 or len(logits) != len(left) or logits.shape[1] < left.shape[2]:
        return mean
    same = (left == logits[:, None, -left.shape[2] :]).all(-1)  # the last columns: one logit was made two
    where = same.to(torch.uint8).argmax(1)
    return torch.where(same.any(1)[:, None], entered[torch.arange(len(entered), device=entered.device), where], mean)


def is_linear(layer: nn.Module) -> bool:
    """Whether `layer` is linear, or one that PEFT adapts: it holds the original as `base_layer`."""
    return isinstance(layer, nn.Linear) or isinstance(layer._modules.get("base_layer"), nn.Linear)


def _linear_layers(modules: dict[str, nn.Module]) -> list[nn.Module]:
    """The linear layers, without those inside an adapted one."""
    adapted = [f"{name}." for name, m in modules.items() if is_linear(m) and not isinstance(m, nn.Linear)]
    inside = tuple(adapted) if "." not in adapted else ("",)
    return [m for name, m in modules.items() if is_linear(m) and (name + "." in adapted or not name.startswith(inside))]
