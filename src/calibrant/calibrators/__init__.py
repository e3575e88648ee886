"""What is fitted after training so that confidence is accuracy: a temperature.

May import: checks.
"""

from calibrant.calibrators.temperature import TemperatureScaling

__all__ = ["TemperatureScaling"]
