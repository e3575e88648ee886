"""Classifiers that know when they don't know.

Public names are resolved on first use, so that `import calibrant` and `calibrant --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "CalibratedClassifier": "calibrant.training.estimator",
    "Decision": "calibrant.predictor",
    "Ensemble": "calibrant.ensemble",
    "MeanField": "calibrant.posterior",
    "Objective": "calibrant.objective",
    "Predictions": "calibrant.predictions",
    "Predictor": "calibrant.predictor",
    "Scheme": "calibrant.schemes",
    "Selector": "calibrant.selective",
    "load": "calibrant.predictor",
}
_ROOMS = ["audit", "backbones", "data", "evaluation", "kernels", "metrics", "ood_scores", "outliers", "posthoc"]
_ROOMS += ["regularizers", "report", "selective"]

__all__ = [*_HOMES, *_ROOMS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"calibrant.{name}")
    raise AttributeError(f"module 'calibrant' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if TYPE_CHECKING:
    from calibrant import (
        audit,
        backbones,
        data,
        evaluation,
        kernels,
        metrics,
        ood_scores,
        outliers,
        posthoc,
        regularizers,
        report,
        selective,
    )
    from calibrant.ensemble import Ensemble
    from calibrant.objective import Objective
    from calibrant.posterior import MeanField
    from calibrant.predictions import Predictions
    from calibrant.predictor import Decision, Predictor, load
    from calibrant.schemes import Scheme
    from calibrant.selective import Selector
    from calibrant.training.estimator import CalibratedClassifier
