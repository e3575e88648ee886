"""Outliers of texts as a tokenizer gives them: tokens, their mask, and whatever is the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant.data.arrays import DataError
from calibrant.data.synthetic.mixture import synthesize


def synthesize_inputs(inputs: Any, labels: Tensor | None = None, kinds: Any = None, seed: int = 0) -> Any:
    """`synthesize` for inputs that are one tensor (N, ...), or a mapping with `input_ids` (N, L).

    Padding is what `attention_mask` says, whatever its token. Entries that are the same for all examples, as token
    types mostly are, stay; with any other ones no outliers can be made.

    >>> ids, mask = torch.tensor([[7, 8, 9, 1], [5, 6, 1, 1]]), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    >>> made = synthesize_inputs({"input_ids": ids, "attention_mask": mask}, kinds="spliced_tokens")
    >>> made["input_ids"], made["attention_mask"]
    (tensor([[7, 6, 1, 1],
            [5, 8, 9, 1]]), tensor([[1, 1, 0, 0],
            [1, 1, 1, 0]]))
    """
    if not isinstance(inputs, Mapping):
        return synthesize(inputs, labels, kinds, seed=seed)
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "attention_mask")}
    varying = [name for name, value in others.items() if not bool((value == value[:1]).all())]
    if "input_ids" not in inputs or varying:
        listing = ", ".join(varying or inputs)
        raise DataError(f"no outliers can be made from inputs that are {listing}; give some as uncertainty data")
    tokens = inputs["input_ids"]
    mask = inputs.get("attention_mask", torch.ones_like(tokens))
    hidden = tokens[mask == 0]
    padding = int(hidden[0]) if len(hidden) else 0
    made = synthesize(torch.where(mask == 0, 0, tokens + 1), labels, kinds, seed=seed)  # 0 is padding to synthesizers
    found = {"input_ids": torch.where(made == 0, padding, made - 1), "attention_mask": (made != 0).to(mask.dtype)}
    return {name: found.get(name, value) for name, value in inputs.items()}
