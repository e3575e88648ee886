"""Temperature scaling: the post-hoc calibration that every other method has to beat."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from calibrant import checks

_STEPS = 100
_TOLERANCE = 1e-10


class TemperatureScaling:
    """One temperature T for all points: p = softmax(z / T), T chosen by the likelihood of held-out labels.

    Of one network z (N, C) are its logits. Of K members z = log mean_k softmax(logits_k): the members are averaged
    first and the average is scaled, so that, as for one network, the predicted class never changes. (Scaling each
    member before averaging could change it, and calibrated members average to an underconfident whole.)

    The likelihood is concave in 1 / T, so its maximum over T in [0.01, 100] is found exactly, by Newton steps kept
    inside a bracket. The bounds matter only where the labels let T run to 0 (every answer right) or to infinity.

    >>> import torch
    >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 1, 1]))  # right 3 times in 4: log 3 = 2 / T
    >>> scaling.temperature_
    1.8205
    """

    temperature_: float

    def fit(self, logits: Any, labels: Any) -> TemperatureScaling:
        """Choose T by logits (N, C) or (K, N, C) and labels (N,) that the network was not trained on."""
        z = _pooled(logits).double()
        target = checks.labels("labels", labels, z.shape[1])
        checks.same_length("labels", target, "logits", z)
        self.temperature_ = 1 / _best_scale(z, target.to(z.device))
        return self

    def transform(self, logits: Any) -> Tensor:
        """Calibrated logits (N, C) for logits (N, C) or (K, N, C), in the dtype that came in."""
        if not hasattr(self, "temperature_"):
            raise ValueError("this TemperatureScaling is not fitted: call fit(logits, labels) first")
        return _pooled(logits) / self.temperature_

    def probabilities(self, logits: Any) -> Tensor:
        """Calibrated probabilities (N, C)."""
        return self.transform(logits).softmax(-1)


def _pooled(logits: Any) -> Tensor:
    """Logits (N, C) as they are; of members (K, N, C) the logarithm of their mean probabilities."""
    value = checks.finite("logits", checks.floating("logits", logits).detach())
    if value.dim() not in (2, 3):
        raise ValueError(f"logits must have shape (N, C) or (K, N, C), not {tuple(value.shape)}")
    return value if value.dim() == 2 else value.log_softmax(-1).logsumexp(0) - math.log(len(value))


def _best_scale(z: Tensor, target: Tensor) -> float:
    """The scale b = 1 / T in [0.01, 100] at which the mean of -log softmax(b z)_y, convex in b, is least."""
    z = z - z.gather(1, target[:, None])
    low, high, scale = 0.01, 100.0, 1.0
    for step in range(_STEPS):
        p = (scale * z).softmax(-1)
        mean = (p * z).sum(-1)
        slope = float(mean.mean())
        curvature = float(((p * z.square()).sum(-1) - mean.square()).mean())
        newton = scale - slope / curvature if curvature > 0 else math.inf
        if slope == 0 or abs(newton - scale) <= _TOLERANCE * scale:
            break
        low, high = (scale, high) if slope < 0 else (low, scale)
        # Where the loss is nearly flat Newton creeps: every third step halves the bracket.
        scale = newton if low < newton < high and step % 3 < 2 else math.sqrt(low * high)
    return scale
