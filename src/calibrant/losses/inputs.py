"""What every regularizer starts from: logits and labels, or confidence and correctness, checked."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from calibrant import checks
from calibrant.adapters.outputs import as_classes, is_one_logit, raw_logits
from calibrant.adapters.unpacking import class_indices


class Predicted(NamedTuple):
    """A batch of predictions: log p (B, C), labels y, confidence r = max p and correctness c in {0, 1}, all (B,)."""

    log_probabilities: Tensor
    labels: Tensor
    confidence: Tensor
    correct: Tensor


def predicted(logits: Any, labels: Any) -> Predicted:
    """What logits (B, C) and labels (B,) say; the confidence carries a gradient, the correctness is a constant.

    Logits (B, 1) are those of two classes, see `adapters.outputs`.
    """
    scores = checks.floating("logits", logits, dims=2)
    scores, index = checks.logits_and_labels(*read_pair(scores, labels))
    log_probabilities = F.log_softmax(full_precision(scores), dim=1)
    top, guess = log_probabilities.max(dim=1)
    return Predicted(log_probabilities, index, top.exp(), (guess == index).to(top.dtype))


def read_pair(logits: Any, labels: Any) -> tuple[Tensor, Any]:
    """Logits (B, C) in what a module returned, and labels; one logit is read as two classes, with labels 0 and 1."""
    raw = raw_logits(logits)
    return as_classes(raw), class_indices(labels) if is_one_logit(raw) else labels


def confidence_and_correct(confidence: Any, correct: Any) -> tuple[Tensor, Tensor]:
    """Confidence r in [0, 1] and correctness c in {0, 1}, both (n,), in one dtype."""
    r = checks.floating("confidence", confidence, dims=1)
    c = checks.shaped("correct", checks.tensor("correct", correct), dims=1)
    checks.same_length("correct", c, "confidence", r)
    if checks.values_visible(r):
        checks.unit_interval("confidence", r.detach())
        checks.correctness("correct", c)
    r = full_precision(r)
    return r, c.to(r)


def full_precision(value: Tensor) -> Tensor:
    """`value` in float32 at least: counts and small differences do not survive half precision."""
    return value.to(torch.promote_types(value.dtype, torch.float32))
