"""The selector to beat: a threshold on the confidence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import checks
from calibrant.calibrators.base import Calibrator
from calibrant.selective.base import BaseSelector


class ConfidenceSelector(BaseSelector):
    """The baseline: accept where confidence is high. g = confidence; outlier scores are ignored."""

    def fit(
        self, confidence: Any, scores: Any = None, correct: Any = None, *, calibrator: Calibrator | str | None = None
    ) -> ConfidenceSelector:
        """Remember the confidence (N,) of validation data and the calibrator that it went through."""
        r = checks.unit_interval("confidence", confidence)
        return self._remember(r.detach().to(torch.promote_types(r.dtype, torch.float32)), calibrator)

    def forward(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """The confidence itself, (B,)."""
        return confidence.clone()
