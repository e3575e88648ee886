"""Other people's modules and devices: where the features are, what a device's name stands for.

May import: nothing of ours.
"""

from calibrant.adapters.devices import choose_device
from calibrant.adapters.features import FeatureTap

__all__ = ["FeatureTap", "choose_device"]
