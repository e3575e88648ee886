"""What is fitted after training so that confidence is accuracy: one file per calibrator, behind one contract.

May import: checks, slots, adapters, predictions.
"""

from calibrant.calibrators.base import Calibrator, fingerprint_of
from calibrant.calibrators.temperature import TemperatureScaling
from calibrant.calibrators.uncalibrated import Uncalibrated

__all__ = ["Calibrator", "TemperatureScaling", "Uncalibrated", "fingerprint_of"]
