"""No calibration: the network's own probabilities."""

from __future__ import annotations

from torch import Tensor

from calibrant.calibrators.base import NONE, Calibrator
from calibrant.slots import register


@register("calibrator", "none")
class Uncalibrated(Calibrator):
    """The members' mean probabilities as they are, to the bit; there is nothing to fit.

    >>> Uncalibrated().fingerprint()
    'none'
    """

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Nothing is learned."""

    def forward(self, z: Tensor) -> Tensor:
        """`z` itself."""
        return z

    def of_mean(self, probabilities: Tensor) -> Tensor:
        """`probabilities` themselves."""
        return probabilities

    def fingerprint(self) -> str:
        """The same as without a calibrator."""
        return NONE

    def check_fitted(self) -> None:
        """It needs no fit."""

    def _check(self, classes: int) -> None:
        """Any number of classes is right."""
