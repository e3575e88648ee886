"""Around `nn.Module`: where the features are, what a device's name stands for, modules that are fitted once.

May import: nothing of ours.
"""

from calibrant.adapters.devices import choose_device
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.fitted import FittedModule

__all__ = ["FeatureTap", "FittedModule", "choose_device"]
