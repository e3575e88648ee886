"""Texts that begin as one example and end as another: fluent halves that do not belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer
from calibrant.slots import register


def other_examples(n: int, labels: Tensor | None, generator: torch.Generator) -> Tensor:
    """For each of `n` examples another one, of another class unless one class has more than half of them.

    In an order sorted by class, a shift by the size of the largest class leads out of every class.
    """
    order = torch.randperm(n, generator=generator, device=generator.device).cpu()
    shift = 1
    if labels is not None:
        order = order[labels.cpu()[order].argsort(stable=True)]
        largest = int(torch.bincount(labels.cpu().long()).max())
        shift = largest if largest < n else 1
    partner = torch.empty_like(order)
    partner[order] = order.roll(-shift)
    return partner


@register("synthesizer", "spliced_tokens")
@dataclass(frozen=True)
class SplicedTokens(Synthesizer):
    """The first half of each example, followed by the second half of another, of another class where labels are given.

    Args:
        padding: the id of the padding token, which stands behind the text (or before it).

    >>> tokens = torch.tensor([[1, 2, 3, 4, 0], [5, 6, 0, 0, 0]])
    >>> SplicedTokens()(tokens, torch.Generator().manual_seed(0))
    tensor([[1, 2, 6, 0, 0],
            [5, 3, 4, 0, 0]])
    """

    padding: int = 0
    kind: ClassVar[DataKind] = "tokens"

    def obstacle(self, inputs: Tensor) -> str | None:
        """One token, or one example."""
        return super().obstacle(inputs) or ("it needs at least two examples" if len(inputs) < 2 else None)

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Tokens (N, L), spliced."""
        content = inputs != self.padding
        if int((~content[:, 0]).sum()) > int((~content[:, -1]).sum()):  # padding before the text
            return type(self)(self.padding)(inputs.flip(1), generator, labels).flip(1)
        place = torch.arange(inputs.shape[1], device=inputs.device)
        length = torch.where(content, place + 1, 0).amax(1, keepdim=True)
        partner = other_examples(len(inputs), labels, generator).to(inputs.device)
        cut, other = length // 2, inputs[partner]
        index = place - cut + length[partner] // 2
        tail = other.gather(1, index.clamp(0, inputs.shape[1] - 1))
        tail = torch.where(index < length[partner], tail, torch.full_like(tail, self.padding))
        return torch.where(place < cut, inputs, tail)
