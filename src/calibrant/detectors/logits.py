"""OOD scores of logits: larger means more outlying.

Each takes logits (K, B, C) of K members, or (B, C) of one network, and returns (B,). Confidence and entropy are of the
mean probabilities; every other score is the mean of the members' scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from calibrant import checks


def msp(logits: Any) -> Tensor:
    """1 - the maximum softmax probability, 1 - max_c p_c with p the mean over members: 1 - confidence, in [0, 1].

    >>> import torch
    >>> msp(torch.zeros(1, 1, 4))
    tensor([0.7500])
    """
    return 1 - _mean_log_probabilities(_members(logits)).exp().amax(-1)


def max_logit(logits: Any) -> Tensor:
    """-max_c z_c, averaged over members.

    >>> import torch
    >>> max_logit(torch.tensor([[[1.0, 3.0]], [[2.0, 0.0]]]))
    tensor([-2.5000])
    """
    return -_members(logits).amax(-1).mean(0)


def energy(logits: Any, temperature: float = 1.0) -> Tensor:
    """The free energy -T log sum_c exp(z_c / T) at `temperature` T, averaged over members.

    >>> import torch
    >>> energy(torch.zeros(1, 1, 4))  # -log 4
    tensor([-1.3863])
    """
    scale = checks.positive("temperature", temperature)
    return -scale * (_members(logits) / scale).logsumexp(-1).mean(0)


def predictive_entropy(logits: Any) -> Tensor:
    """-sum_c p_c log p_c of the mean probabilities p, in nats, in [0, log C].

    >>> import torch
    >>> predictive_entropy(torch.zeros(1, 1, 4))  # log 4
    tensor([1.3863])
    """
    return _entropy(_mean_log_probabilities(_members(logits)))


def mutual_information(logits: Any) -> Tensor:
    """Predictive entropy less the mean entropy of the members: how far they disagree, in [0, log K]; 0 for one member.

    >>> import torch
    >>> mutual_information(torch.tensor([[[40.0, 0.0]], [[0.0, 40.0]]]))  # two certain members of two minds: log 2
    tensor([0.6931])
    """
    members = _members(logits)
    own = _entropy(members.log_softmax(-1)).mean(0)
    return (_entropy(_mean_log_probabilities(members)) - own).clamp(min=0)


SCORES: Mapping[str, Callable[[Any], Tensor]] = {
    "msp": msp,
    "max_logit": max_logit,
    "energy": energy,
    "entropy": predictive_entropy,
    "mutual_information": mutual_information,
}


def score_rows(name: str, logits: Tensor) -> Tensor:
    """The score `name` of logits (K, B, C), NaN for inputs whose logits are not all finite; the others keep theirs."""
    finite = logits.isfinite().all(-1).all(0)
    return torch.where(finite, SCORES[name](torch.where(finite[:, None], logits, 0.0)), torch.nan)


def _members(logits: Any) -> Tensor:
    value = checks.floating("logits", logits)
    if value.dim() not in (2, 3):
        raise ValueError(f"logits must have shape (K, B, C) or (B, C), not {tuple(value.shape)}")
    if checks.values_visible(value):
        checks.finite("logits", value)
    return value if value.dim() == 3 else value[None]


def _mean_log_probabilities(members: Tensor) -> Tensor:
    """The logarithm of the mean over members of softmax, (B, C)."""
    return members.log_softmax(-1).logsumexp(0) - math.log(len(members))


def _entropy(log_probabilities: Tensor) -> Tensor:
    return -(log_probabilities.exp() * log_probabilities).sum(-1)
