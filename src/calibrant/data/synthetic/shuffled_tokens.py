"""Texts with their tokens in random order: the words are kept, the sentence is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from calibrant.data.synthetic.base import DataKind, Synthesizer, uniform
from calibrant.slots import register


def frame_tokens(tokens: Tensor, padding: int) -> list[int]:
    """The tokens that every example begins or ends with, as [CLS] and [SEP] of a tokenizer; `tokens` is (N, L)."""
    content = tokens != padding
    place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    first = torch.where(content, place, tokens.shape[1] - 1).amin(1)
    last = torch.where(content, place, 0).amax(1)
    ends = [set(tokens.gather(1, end[:, None])[:, 0].tolist()) for end in (first, last)]
    return [values.pop() for values in ends if len(values) == 1 and len(tokens) > 1]


@register("synthesizer", "shuffled_tokens")
@dataclass(frozen=True)
class ShuffledTokens(Synthesizer):
    """Shuffle the tokens within each example; padding stays where it is.

    Args:
        padding: the id of the padding token.

    What every example begins or ends with, such as [CLS] and [SEP], stays too: moving it would make outliers that no
    tokenizer can produce.

    >>> tokens = torch.tensor([[7, 3, 5, 4, 0], [7, 6, 8, 9, 2]])
    >>> ShuffledTokens()(tokens, torch.Generator().manual_seed(2))
    tensor([[7, 3, 4, 5, 0],
            [7, 2, 8, 6, 9]])
    """

    padding: int = 0
    kind: ClassVar[DataKind] = "tokens"

    def __call__(self, inputs: Tensor, generator: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Tokens (N, L), shuffled within each row."""
        fixed = torch.tensor([self.padding, *frame_tokens(inputs, self.padding)], device=inputs.device)
        stays = torch.isin(inputs, fixed.to(inputs.dtype))
        place = torch.arange(inputs.shape[1], device=inputs.device, dtype=torch.float32)
        keys = uniform((inputs.shape[0], inputs.shape[1]), generator, inputs.device)
        source = torch.where(stays, 1 + place, keys).argsort(1)  # what moves, in random order, then what stays
        target = stays.int().argsort(dim=1, stable=True)
        return torch.empty_like(inputs).scatter_(1, target, inputs.gather(1, source))
