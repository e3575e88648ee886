"""The loss terms: calibration regularizers, confidence minimization, and the objective that adds them up.

A regularizer is a pure function and a small module `(logits, labels) -> scalar`; `confidence_minimization` takes logits
only. Logits are (B, C); for members (K, B, C) the regularizer is that of each member, averaged.

May import: checks, kernels.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from torch import nn

from calibrant.losses.avuc import AvUC, avuc
from calibrant.losses.confidence import ConfidenceMinimization, confidence_minimization
from calibrant.losses.dece import DECE, dece
from calibrant.losses.esd import ESD, esd
from calibrant.losses.focal import FocalLoss, focal
from calibrant.losses.mmce import MMCE, WeightedMMCE, mmce, weighted_mmce
from calibrant.losses.soft_avuc import SoftAvUC, soft_avuc

REGULARIZERS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    {
        "mmce": MMCE,
        "weighted_mmce": WeightedMMCE,
        "weighted_mmce_code": partial(WeightedMMCE, normalization="authors_code"),
        "esd": ESD,
        "dece": DECE,
        "focal": FocalLoss,
        "avuc": AvUC,
        "soft_avuc": SoftAvUC,
    }
)
"""The regularizers by the names of the settings; called with their options, they give `(logits, labels) -> scalar`."""

__all__ = [
    "DECE",
    "ESD",
    "MMCE",
    "REGULARIZERS",
    "AvUC",
    "ConfidenceMinimization",
    "FocalLoss",
    "SoftAvUC",
    "WeightedMMCE",
    "avuc",
    "confidence_minimization",
    "dece",
    "esd",
    "focal",
    "mmce",
    "soft_avuc",
    "weighted_mmce",
]
