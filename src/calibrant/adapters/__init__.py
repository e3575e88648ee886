"""Other people's modules and batches: where inputs, labels, logits and features are, on which device; fitted modules.

May import: nothing of ours.
"""

from calibrant.adapters.calling import arguments
from calibrant.adapters.compiled import uncompiled
from calibrant.adapters.devices import choose_device
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.fitted import FittedModule
from calibrant.adapters.outputs import logits_of
from calibrant.adapters.trees import move_to
from calibrant.adapters.unpacking import split_batch

__all__ = [
    "FeatureTap",
    "FittedModule",
    "arguments",
    "choose_device",
    "logits_of",
    "move_to",
    "split_batch",
    "uncompiled",
]
