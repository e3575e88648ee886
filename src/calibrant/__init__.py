"""Classifiers that know when they don't know.

Public names are resolved on first use, so that `import calibrant` and `calibrant --help` stay fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

_HOMES = {
    "CalibratedClassifier": "calibrant.deploy.estimator",
    "Decision": "calibrant.deploy",
    "Ensemble": "calibrant.posteriors.ensemble",
    "MeanField": "calibrant.posteriors.mean_field",
    "Objective": "calibrant.losses.objective",
    "Predictions": "calibrant.predictions",
    "Predictor": "calibrant.deploy",
    "Scheme": "calibrant.config.schemes",
    "Selector": "calibrant.selective",
    "Trust": "calibrant.selective",
    "load": "calibrant.deploy",
    "measure": "calibrant.metrics.declarations",
    "register": "calibrant.slots",
}
_ROOMS = ["audit", "backbones", "calibrators", "data", "detectors", "evaluation", "kernels", "losses", "metrics"]
_ROOMS += ["posteriors", "report", "selective"]

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
        calibrators,
        data,
        detectors,
        evaluation,
        kernels,
        losses,
        metrics,
        posteriors,
        report,
        selective,
    )
    from calibrant.config.schemes import Scheme
    from calibrant.deploy import Decision, Predictor, load
    from calibrant.deploy.estimator import CalibratedClassifier
    from calibrant.losses.objective import Objective
    from calibrant.metrics.declarations import measure
    from calibrant.posteriors.ensemble import Ensemble
    from calibrant.posteriors.mean_field import MeanField
    from calibrant.predictions import Predictions
    from calibrant.selective import Selector, Trust
    from calibrant.slots import register
