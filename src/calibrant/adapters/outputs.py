"""What a module returns: where the logits are, and the features if it returns them as well.

| output | logits |
|---|---|
| a tensor | itself |
| a mapping or an object with `logits`, such as Hugging Face's `ModelOutput` | that entry |
| a mapping with a single tensor | that one |
| a tuple or list | the first tensor that is not a scalar, for a loss may come before it |

One logit z per example, (B,) or (B, 1), is that of a network with a sigmoid: it is read as the logits [0, z] of two
classes, because softmax([0, z]) = [1 - sigmoid(z), sigmoid(z)].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.adapters.trees import tensors_in


def raw_logits(output: Any) -> Tensor:
    """The logits in `output`, by the table above, as they are."""
    if isinstance(output, Tensor):
        return output
    own = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if isinstance(own, Tensor):
        return own
    parts = list(output.values()) if isinstance(output, Mapping) else output
    tensors = [part for part in parts if isinstance(part, Tensor)] if isinstance(parts, (tuple, list)) else []
    arrays = [part for part in tensors if part.dim() > 0]
    if arrays and (len(arrays) == 1 or not isinstance(output, Mapping)):
        return arrays[0]
    named = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    raise InputError(
        f"the module returns a {type(output).__name__}{named}, in which no logits are found: wrap it in a module whose"
        " forward returns logits (B, C)"
    )


def is_one_logit(logits: Tensor) -> bool:
    """Whether `logits` are one number per example, (B,) or (B, 1), or (K, B, 1) of K members.

    >>> is_one_logit(torch.zeros(3, 1)), is_one_logit(torch.zeros(3, 2))
    (True, False)
    """
    return logits.dim() == 1 or (logits.dim() > 1 and logits.shape[-1] == 1)


def as_classes(logits: Tensor, inputs: Any = None) -> Tensor:
    """`logits` (..., C); one logit per example, (B,) or (..., 1), as those of two classes.

    Logits (B,) are refused if `inputs`, which they are of, are not B: a network that drops the dimension of the batch.

    >>> as_classes(torch.tensor([[2.0], [-1.0]]))
    tensor([[ 0.,  2.],
            [ 0., -1.]])
    """
    if not is_one_logit(logits):
        return logits
    sizes = {len(tensor) for tensor in tensors_in(inputs) if tensor.dim()} if logits.dim() == 1 else set()
    if sizes and len(logits) not in sizes:
        raise InputError(
            f"the module returns shape {tuple(logits.shape)} for a batch of {min(sizes)}: it must be (B, C), or (B,) of"
            " one logit; does it squeeze the batch away?"
        )
    one = logits[:, None] if logits.dim() == 1 else logits
    return torch.cat([torch.zeros_like(one), one], -1)


def logits_of(output: Any, inputs: Any = None) -> Tensor:
    """The logits (B, C) in whatever a module returns for `inputs`; one logit is read as two classes."""
    return as_classes(raw_logits(output), inputs)


def returned_features(output: Any) -> Tensor | None:
    """Features (B, D) that the module returns itself: the second of a pair, or the entry "features"; else None."""
    if isinstance(output, Mapping):
        found = output.get("features")
    else:
        pair = isinstance(output, (tuple, list)) and not hasattr(output, "_fields") and len(output) == 2
        found = output[1] if pair and isinstance(output[0], Tensor) and output[0].dim() > 0 else None
    return found if isinstance(found, Tensor) and found.dim() == 2 else None
