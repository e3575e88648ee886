"""What is fitted after training so that confidence is accuracy: one file per calibrator, behind one contract.

Names are resolved on first use, because `fits` and `choosing`, which recalibrate tables, need no torch.

May import: checks, files, slots, adapters, predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrant import names_on_first_use

if TYPE_CHECKING:
    from calibrant.calibrators.auto import AutoCalibrator
    from calibrant.calibrators.base import Calibrator, fingerprint_of
    from calibrant.calibrators.isotonic import IsotonicCalibration
    from calibrant.calibrators.saved import load, save
    from calibrant.calibrators.temperature import TemperatureScaling
    from calibrant.calibrators.uncalibrated import Uncalibrated
    from calibrant.calibrators.vector import VectorScaling

_HOMES = {
    "AutoCalibrator": "auto",
    "Calibrator": "base",
    "IsotonicCalibration": "isotonic",
    "TemperatureScaling": "temperature",
    "Uncalibrated": "uncalibrated",
    "VectorScaling": "vector",
    "fingerprint_of": "base",
    "load": "saved",
    "save": "saved",
}

__all__ = [
    "AutoCalibrator",
    "Calibrator",
    "IsotonicCalibration",
    "TemperatureScaling",
    "Uncalibrated",
    "VectorScaling",
    "fingerprint_of",
    "load",
    "save",
]

__getattr__, __dir__ = names_on_first_use(__name__, _HOMES)
