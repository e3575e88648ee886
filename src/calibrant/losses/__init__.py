"""The loss terms: calibration regularizers, confidence minimization, and the objective that adds them up.

A regularizer is a pure function and a small module `(logits, labels) -> scalar`, registered by its name (`slots`);
`confidence_minimization` takes logits only. Logits are (B, C); for members (K, B, C) the regularizer is that of each
member, averaged.

May import: checks, kernels, slots, adapters, posteriors.
"""

from calibrant.losses.avuc import AvUC, avuc
from calibrant.losses.confidence import ConfidenceMinimization, confidence_minimization
from calibrant.losses.dece import DECE, dece
from calibrant.losses.esd import ESD, esd
from calibrant.losses.focal import FocalLoss, focal
from calibrant.losses.mmce import MMCE, WeightedMMCE, mmce, weighted_mmce
from calibrant.losses.soft_avuc import SoftAvUC, soft_avuc

__all__ = [
    "DECE",
    "ESD",
    "MMCE",
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
