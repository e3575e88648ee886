"""SIRC: confidence and one outlier score combined without outliers (Xia & Bouganis 2022)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.predictions import Predictions
from calibrant.selective.base import BaseSelector, score_columns


class SIRC(BaseSelector):
    """Softmax information retaining combination of the confidence c and the score s of one detector.

    Xia & Bouganis, "Augmenting Softmax Information for Selective Classification with Out-of-Distribution Data", ACCV
    2022, https://arxiv.org/abs/2207.07506, with S1 = c, whose maximum is 1, and S2 = -s:

        C = -(1 - S1) (1 + exp(-b (S2 - a))),     a = mean(S2) - 3 std(S2),     b = 1 / std(S2)

    with mean and std over ID validation data. Among inputs unlike the ID data, S2 far below a, the score decides; among
    the others the confidence does. No outliers are needed. The output g = 1 / (1 - C) is an increasing function of C in
    (0, 1]; it ranks inputs and is no probability, on ID data or elsewhere.

    `detector` names the column that is read; it may be left out where there is only one.

    >>> validation = Predictions(torch.tensor([0.9, 0.6, 0.8]), None, scores={"knn": torch.tensor([0.1, 0.2, 0.3])})
    >>> sirc = SIRC("knn").fit(validation)
    >>> sirc(torch.tensor([0.9, 0.9]), torch.tensor([[0.2], [0.9]]))
    tensor([0.9050, 0.0365])
    """

    center: Tensor
    rate: Tensor

    def __init__(self, detector: str | None = None) -> None:
        super().__init__()
        self.detector = detector
        self.names = () if detector is None else (detector,)
        self.register_buffer("center", torch.tensor(0.0))
        self.register_buffer("rate", torch.tensor(1.0))

    def fit(self, validation: Predictions) -> SIRC:
        """Take a and b from ID validation data with a column of scores; no labels and no outliers are needed."""
        if self.detector is None and len(validation.scores) == 1:
            self.detector = next(iter(validation.scores))
        if self.detector is None or self.detector not in validation.scores:
            have = ", ".join(validation.scores) or "none"
            raise InputError(f"detector must name one of the scores of validation ({have}), not {self.detector!r}")
        self.names = (self.detector,)
        return self.fit_arrays(
            validation.confidence, validation.scores[self.detector], calibrator=validation.calibrator
        )

    def fit_arrays(self, confidence: Any, score: Any, *, calibrator: str | None = None) -> SIRC:
        """`fit` on confidence (N,), which went through `calibrator`, and score (N,)."""
        r = checks.unit_interval("confidence", confidence).detach()
        r = r.to(torch.promote_types(r.dtype, torch.float32))
        s = score_columns(checks.floating("score", score, dims=1)[:, None], r)
        std, mean = torch.std_mean(-s, correction=0)
        if float(std) == 0:
            raise InputError("score is the same for all validation data; choose another detector")
        self.center, self.rate = mean - 3 * std, 1 / std
        self.gates = r  # for the dtype and device that forward works in
        return self._remember(self(r, s), calibrator)

    def forward(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """G (B,) of confidence (B,) and scores (B, 1)."""
        combined = torch.nn.functional.softplus(self.rate * (scores[:, 0] + self.center))
        return torch.sigmoid(-((1 - confidence).log() + combined))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"detector": self.detector, **super().config()}

    def _check_fitted(self) -> None:
        if self.gates.numel() == 0:
            raise InputError("the selector is not fitted: call fit(validation) first")

    def _inputs(self, confidence: Any, scores: Any) -> tuple[Tensor, Tensor]:
        r, s = super()._inputs(confidence, scores)
        if s.shape[1] != 1:
            raise InputError(f"scores have {s.shape[1]} columns, but SIRC reads one, {self.detector}")
        return r, s
