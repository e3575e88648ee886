"""Temperature scaling: the post-hoc calibration that every other method has to beat."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.fits import best_scale
from calibrant.slots import register


@register("calibrator", "temperature")
class TemperatureScaling(Calibrator):
    """One temperature T for all points: p = softmax(z / T), T chosen by the likelihood of held-out labels.

    z are the logits of one network, or the logarithm of the members' mean probabilities, so the predicted class never
    changes. (Scaling each member before averaging could change it.) Guo et al., "On Calibration of Modern Neural
    Networks", ICML 2017, https://arxiv.org/abs/1706.04599.

    The likelihood is concave in 1 / T, so its maximum over T in [0.01, 100] is found exactly, by Newton steps kept
    inside a bracket. The bounds matter only where the labels let T run to 0 (every answer right) or to infinity.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 1, 1]))  # right 3 times in 4: log 3 = 2 / T
    >>> scaling.temperature_
    1.8205
    """

    temperature: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("temperature", torch.tensor(math.nan, dtype=torch.float64))

    @property
    def temperature_(self) -> float:
        """T; NaN before `fit`."""
        return float(self.temperature)

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Choose T by logits z (N, C) and labels (N,)."""
        self.temperature = torch.full_like(self.temperature, 1 / _scale(z, labels))

    def forward(self, z: Tensor) -> Tensor:
        """The scaled logits z / T, (N, C)."""
        return z / self.temperature.to(z.dtype)

    def facts(self) -> dict[str, float]:
        """The temperature."""
        return {"temperature": self.temperature_}


def _scale(z: Tensor, target: Tensor) -> float:
    """The scale b = 1 / T in [0.01, 100] at which the mean of -log softmax(b z)_y, convex in b, is least."""
    z = z - z.gather(1, target[:, None])

    def derivatives(scale: float) -> tuple[float, float]:
        p = (scale * z).softmax(-1)
        mean = (p * z).sum(-1)
        return float(mean.mean()), float(((p * z.square()).sum(-1) - mean.square()).mean())

    return best_scale(derivatives)
