"""The scores of logits as functions: larger means more outlying.

Each takes logits (K, B, C) of K members, or (B, C) of one network, and returns (B,). Confidence and entropy are of the
mean probabilities; mutual information compares them with the members' own; every other score is the mean of the
members' scores. Each has a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from calibrant import InputError
from calibrant.detectors.energy import energy
from calibrant.detectors.entropy import predictive_entropy
from calibrant.detectors.logit_detector import LogitDetector
from calibrant.detectors.max_logit import max_logit
from calibrant.detectors.msp import msp
from calibrant.detectors.mutual_information import mutual_information
from calibrant.slots import build, check, lookup, names

SCORES: Mapping[str, Callable[[Any], Tensor]] = {
    "msp": msp,
    "max_logit": max_logit,
    "energy": energy,
    "entropy": predictive_entropy,
    "mutual_information": mutual_information,
}
"""The scores that are kept with every prediction."""


def logit_detector(name: str) -> LogitDetector:
    """The registered detector `name` with its default options; refused unless it reads logits alone, without a fit."""
    check("detector", name)
    found = build("detector", name)
    if not isinstance(found, LogitDetector):
        raise InputError(f"detector {name} must be fitted first: name one of {', '.join(logit_names())}")
    return found


def logit_names() -> list[str]:
    """The names of the detectors of logits alone; those of 0.1.0 come first."""
    every = [*SCORES, *(name for name in names("detector") if name not in SCORES)]
    return [name for name in every if _reads_logits(lookup("detector", name))]


def score_rows(name: str, logits: Tensor) -> Tensor:
    """The score `name` of logits (K, B, C), NaN for inputs whose logits are not all finite; the others keep theirs."""
    return logit_detector(name).score_rows(logits)


def _reads_logits(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, LogitDetector)


__all__ = [
    "SCORES",
    "energy",
    "logit_detector",
    "logit_names",
    "max_logit",
    "msp",
    "mutual_information",
    "predictive_entropy",
    "score_rows",
]
