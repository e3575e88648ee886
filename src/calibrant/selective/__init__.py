"""Selective inference: a selector on confidence and outlier scores, its thresholds and what they guarantee.

Names are resolved on first use, because `ratio`, which the audit of tables fits, needs no torch.

May import: checks, kernels, slots, adapters, metrics, predictions, calibrators, detectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant import names_on_first_use

if TYPE_CHECKING:
    from calibrant.selective.base import BaseSelector
    from calibrant.selective.baselines import ConfidenceSelector
    from calibrant.selective.certificate import Certificate, Promise, certify_promise
    from calibrant.selective.fitting import FitReport, Training
    from calibrant.selective.guarantees import Guarantee
    from calibrant.selective.objectives import (
        SelectiveCalibration,
        SelectiveClassification,
        SelectorExamples,
        SelectorObjective,
        selective_mmce,
    )
    from calibrant.selective.rule import DecisionRule
    from calibrant.selective.selector import Selector
    from calibrant.selective.sirc import SIRC
    from calibrant.selective.stream import Share, estimate_share
    from calibrant.selective.thresholds import Threshold, threshold_for_coverage
    from calibrant.selective.trust import Trust, choose_confidence

_HOMES = {
    "BaseSelector": "base",
    "Certificate": "certificate",
    "ConfidenceSelector": "baselines",
    "DecisionRule": "rule",
    "FitReport": "fitting",
    "Guarantee": "guarantees",
    "Promise": "certificate",
    "SIRC": "sirc",
    "SelectiveCalibration": "objectives",
    "SelectiveClassification": "objectives",
    "Selector": "selector",
    "SelectorExamples": "objectives",
    "SelectorObjective": "objectives",
    "Share": "stream",
    "Threshold": "thresholds",
    "Training": "fitting",
    "Trust": "trust",
    "certify_promise": "certificate",
    "choose_confidence": "trust",
    "estimate_share": "stream",
    "selective_mmce": "objectives",
    "threshold_for_coverage": "thresholds",
}

__all__ = [
    "SIRC",
    "BaseSelector",
    "Certificate",
    "ConfidenceSelector",
    "DecisionRule",
    "FitReport",
    "Guarantee",
    "Promise",
    "SelectiveCalibration",
    "SelectiveClassification",
    "Selector",
    "SelectorExamples",
    "SelectorObjective",
    "Share",
    "Threshold",
    "Training",
    "Trust",
    "certify_promise",
    "choose_confidence",
    "estimate_share",
    "selective_mmce",
    "threshold_for_coverage",
]

__getattr__, __dir__ = names_on_first_use(__name__, _HOMES)
