"""Isotonic regression: any increasing function of the probability, chosen by the data."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.calibrators.base import Calibrator
from calibrant.calibrators.fits import fit_isotonic
from calibrant.slots import register


@register("calibrator", "isotonic")
class IsotonicCalibration(Calibrator):
    """One increasing function g of the probability, by isotonic regression: p' in proportion to N g(p) + p + 1 / C.

    - Of more than two classes, g is fitted to the N C pairs of p_c and "c is the label", all classes together, and
      serves every class. What is added to N g(p), one pseudo-observation of the network's own p and one of the uniform
      distribution, makes the sum strictly increasing and positive. The predicted class is therefore always kept, and no
      class gets probability 0. This is the accuracy-preserving form of Zhang, Kailkhura and Han, "Mix-n-Match",
      ICML 2020, https://arxiv.org/abs/2003.07329. A regression per class, normalized afterwards, would change the
      predicted class and needs C times the data: where classes differ, take `vector`.
    - Of two classes, g is that of the probability of the second class, as usual (Zadrozny and Elkan, "Transforming
      Classifier Scores into Accurate Multiclass Probability Estimates", KDD 2002): p'_1 = (N g(p_1) + p_1 + 1/2) /
      (N + 2). The predicted class changes between 1/2 and the p_1 at which p'_1 is 1/2.

    g is piecewise linear, as scikit-learn's `IsotonicRegression` predicts.

    >>> logits = torch.tensor([[0.0, 2.0]] * 50 + [[2.0, 0.0]] * 50)
    >>> labels = torch.tensor([1] * 30 + [0] * 20 + [0] * 50)  # 0.88 is right in 60 %, 0.12 in 0 %
    >>> IsotonicCalibration().fit(logits, labels).probabilities(logits[:1])
    tensor([[0.3982, 0.6018]])
    """

    knots: Tensor
    levels: Tensor
    rows: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.empty(0, dtype=torch.float64))
        self.register_buffer("levels", torch.empty(0, dtype=torch.float64))
        self.register_buffer("rows", torch.tensor(0))

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Fit g to logits z (N, C) and labels (N,)."""
        self.fit_arrays(fit_isotonic, z, labels)
        self.keeps_class = z.shape[1] != 2

    def forward(self, z: Tensor) -> Tensor:
        """The logarithm of the new probabilities, (N, C)."""
        p = z.to(self.knots.dtype).softmax(-1)
        mass = self.rows * self._g(p) + p + 1 / z.shape[-1]
        if z.shape[-1] == 2:
            second = mass[..., 1:] / (self.rows + 2)
            mass = torch.cat([1 - second, second], -1)
        return mass.log().log_softmax(-1).to(z.dtype)

    def facts(self) -> dict[str, int]:
        """The number of points between which g is linear."""
        return {"knots": len(self.knots)}

    def _g(self, p: Tensor) -> Tensor:
        """The piecewise linear function, by a binary search of operations that ONNX has."""
        last = len(self.knots) - 1
        place = torch.zeros_like(p, dtype=torch.long)
        for power in reversed(range(last.bit_length())):
            ahead = (place + 2**power).clamp(max=last)
            place = torch.where(self.knots[ahead] <= p, ahead, place)
        after = (place + 1).clamp(max=last)
        left, right = self.knots[place], self.knots[after]
        part = ((p - left) / (right - left).clamp_min(torch.finfo(p.dtype).tiny)).clamp(0, 1)
        return self.levels[place] + part * (self.levels[after] - self.levels[place])

    def _restore(self, tensors: Mapping[str, Tensor]) -> IsotonicCalibration:
        super()._restore(tensors)
        fits = self.knots.shape == self.levels.shape and len(self.knots) > 0 and int(self.rows) > 0
        if not fits or bool((self.knots.diff() < 0).any()) or bool((self.levels.diff() < 0).any()):
            raise InputError("tensors do not belong to an IsotonicCalibration: its function does not increase")
        checks.unit_interval("knots", self.knots)
        checks.unit_interval("levels", self.levels)
        self.keeps_class = int(self.classes) != 2
        return self
