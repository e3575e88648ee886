"""Vector scaling, structured and regularized: a scale and a bias for each class beside one temperature."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.fits import fit_vector
from calibrant.slots import register


@register("calibrator", "vector")
class VectorScaling(Calibrator):
    """A temperature T, then a scale v_c and a bias b_c for every class c, held near 1 and 0: p = softmax(v log q + b).

    q = (N softmax(z / T) + 1 / C) / (N + 1) are the scaled probabilities of C classes with one pseudo-observation of
    the uniform distribution beside the N examples of the fit. v and b minimize the mean of -log p_y plus `penalty`
    C / N (|v - 1|^2 + |b|^2), so little data moves them little. Vector scaling is by Guo et al., "On Calibration of
    Modern Neural Networks", ICML 2017; this structure and penalty are by Berta, Holzmüller, Jordan and Bach,
    "Structured Matrix Scaling for Multi-Class Calibration", AISTATS 2026, https://arxiv.org/abs/2511.03685.

    Where single classes are over- or underestimated, the predicted class changes: `keeps_class` is False.

    Args:
        penalty: weight of the penalty; 0 is plain vector scaling.

    >>> logits = torch.tensor([[2.0, 1.0]] * 60 + [[1.0, 2.0]] * 40)
    >>> labels = torch.tensor([0] * 30 + [1] * 70)  # the second class is underestimated
    >>> VectorScaling().fit(logits, labels).probabilities(logits[:1])
    tensor([[0.4776, 0.5224]])
    """

    keeps_class = False
    temperature: Tensor
    uniform: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, *, penalty: float = 1.0) -> None:
        super().__init__()
        if not 0 <= penalty < math.inf:
            raise InputError(f"penalty must be a finite number of at least 0, not {penalty}")
        self.penalty = float(penalty)
        for name in ("temperature", "uniform"):
            self.register_buffer(name, torch.tensor(math.nan, dtype=torch.float64))
        for name in ("scale", "bias"):
            self.register_buffer(name, torch.empty(0, dtype=torch.float64))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"penalty": self.penalty}

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Choose T, then v and b, by logits z (N, C) and labels (N,)."""
        self.fit_arrays(partial(fit_vector, penalty=self.penalty), z, labels)

    def forward(self, z: Tensor) -> Tensor:
        """The logits v log q + b, (N, C)."""
        temperature, u, scale, bias = (part.to(z.dtype) for part in self._fitted())
        q = (1 - u) * (z / temperature).softmax(-1) + u / z.shape[-1]
        return scale * q.log() + bias

    def facts(self) -> dict[str, float]:
        """The temperature, and the range of the classes' scales and biases."""
        about = {"temperature": float(self.temperature)}
        for name, values in (("scale", self.scale), ("bias", self.bias)):
            about |= {f"{name}_least": float(values.min()), f"{name}_most": float(values.max())}
        return about

    def _fitted(self) -> tuple[Tensor, ...]:
        return self.temperature, self.uniform, self.scale, self.bias

    def _restore(self, tensors: Mapping[str, Tensor]) -> VectorScaling:
        super()._restore(tensors)
        if {self.scale.shape, self.bias.shape} != {(int(self.classes),)}:
            raise InputError(f"tensors do not belong to a VectorScaling of {int(self.classes)} classes")
        for part in self._fitted():
            checks.finite("tensors", part)
        return self
