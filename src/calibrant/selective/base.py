"""What every selector shares: thresholds, decisions and guarantees from a relaxed output g."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.adapters.fitted import FittedModule
from calibrant.calibrators.base import NONE, Calibrator, fingerprint_of
from calibrant.metrics.arguments import largest
from calibrant.selective.certificate import Certificate, Promise, certify_promise
from calibrant.selective.guarantees import Guarantee, Measure, certify
from calibrant.selective.thresholds import Threshold, threshold_for_coverage

DEFAULT_GRID = tuple(step / 20 for step in range(1, 21))
FINE_GRID = tuple(step / 100 for step in range(1, 101))
Self = TypeVar("Self", bound="BaseSelector")


class BaseSelector(FittedModule, ABC):
    """What every selector can do once `forward` is defined and `gates` is set by its `fit`.

    `gates` (n,) is its sorted `ranking` of the validation data, `tau` is the threshold in force. With `entropy` the
    last column of the scores that it is given is the entropy of the prediction: `columns` puts it there. `calibrator`
    is the fingerprint of the calibrator that the confidences of `fit` went through; a rule with another one refuses it.
    """

    gates: Tensor
    tau: Tensor
    entropy: bool = False
    outlier_gates: Tensor | None = None  # of the outliers it was fitted to, in this process only
    calibrator: str = NONE
    names: tuple[str, ...] | None = None  # the detectors whose scores it reads, in this order; None: those it is given
    probability: bool = False  # whether its output is the probability that the answer is right

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("gates", torch.empty(0))
        self.register_buffer("tau", torch.tensor(math.nan))

    @abstractmethod
    def forward(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """The relaxed decision g in (0, 1), (B,), of confidence (B,) and scores (B, S)."""

    def ranking(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """What a threshold is compared with, (B,): g, or something else that is larger where g is larger."""
        result: Tensor = self(confidence, scores)
        return result

    def config(self) -> dict[str, Any]:
        """The calibrator, where there is one."""
        return {} if self.calibrator == NONE else {"calibrator": self.calibrator}

    @classmethod
    def from_state(cls: type[Self], config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild a fitted selector from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        calibrator = str(settings.pop("calibrator", NONE))
        selector = super().from_state(settings, tensors)
        selector.calibrator = calibrator
        return selector

    def columns(self, scores: Tensor | None, probabilities: Tensor) -> Tensor:
        """What it reads as scores: outlier scores (..., S) and, with `entropy`, that of mean probabilities (..., C)."""
        if scores is None:
            scores = probabilities.new_empty(*probabilities.shape[:-1], 0)
        if not self.entropy:
            return scores
        tiny = torch.finfo(probabilities.dtype).tiny
        entropy = -(probabilities * probabilities.clamp_min(tiny).log()).sum(-1, keepdim=True)
        return torch.cat([scores, entropy.to(scores)], -1)

    def acceptance(self, probabilities: Tensor, scores: Tensor | None = None) -> Tensor:
        """What a threshold is compared with, (B,), of the probabilities (B, C) and the outlier scores (B, S)."""
        read = self.columns(scores, probabilities)
        return self.ranking(largest(probabilities).to(self.gates), read.to(self.gates))

    @torch.no_grad()
    def relaxed(self, confidence: Any, scores: Any = None) -> Tensor:
        """`forward` on checked input; `scores` may be None where the selector was fitted without."""
        self._check_fitted()
        r, s = self._inputs(confidence, scores)
        result: Tensor = self(r, s)
        return result

    @torch.no_grad()
    def ranked(self, confidence: Any, scores: Any = None) -> Tensor:
        """`ranking` of checked input; `scores` may be None where the selector was fitted without."""
        self._check_fitted()
        return self.ranking(*self._inputs(confidence, scores))

    def threshold(self, coverage: float, confidence: Any = None, scores: Any = None) -> Threshold:
        """Set and return the threshold of the smallest achievable coverage that is at least `coverage`.

        Measured on the data of `fit`, or on the data given here.
        """
        self._check_fitted()
        gate = self.gates if confidence is None else self.ranked(confidence, scores)
        found = threshold_for_coverage(gate, coverage)
        self.tau = torch.full_like(self.tau, found.value)
        return found

    def accept(self, confidence: Any, scores: Any = None, threshold: float | Threshold | None = None) -> Tensor:
        """Whether each input is answered, (B,) bool: `ranking` at least tau."""
        if threshold is None and bool(self.tau.isnan()):
            raise InputError("threshold is not set: call threshold(coverage=...) or guarantee(...) first, or pass one")
        return self.ranked(confidence, scores) >= (self.tau if threshold is None else float(threshold))

    def guarantee(
        self,
        confidence: Any,
        scores: Any,
        correct: Any,
        *,
        alpha: float,
        delta: float = 0.1,
        measure: Measure = "error",
        coverages: Sequence[float] = DEFAULT_GRID,
        bins: int = 10,
        starts: int | None = None,
    ) -> Guarantee:
        """The largest coverage at which `measure` is at most `alpha` with probability at least 1 - `delta`.

        The data given must have had no part in fitting the model or the selector or in any choice between them. The
        grid holds the thresholds of `coverages` on the data of `fit`. If one is certified it is put in force.
        """
        gate, r, c = self._held_out(confidence, scores, correct)
        grid = self._grid(coverages)
        found = certify(gate, r, c, grid, alpha=alpha, delta=delta, measure=measure, bins=bins, starts=starts)
        if found.threshold is not None:
            self.tau = torch.full_like(self.tau, found.threshold)
        return found

    def certify(
        self,
        confidence: Any,
        scores: Any,
        correct: Any,
        outlier_confidence: Any,
        outlier_scores: Any = None,
        *,
        max_error: float,
        max_outliers: float,
        min_coverage: float | None = None,
        delta: float = 0.1,
        population: str = "outliers",
        coverages: Sequence[float] = FINE_GRID,
        starts: int = 1,
    ) -> Certificate:
        """The largest coverage at which three things hold together with probability at least 1 - `delta`.

        The error among accepted ID inputs is at most `max_error`, the share of the outliers called `population` that is
        accepted is at most `max_outliers`, and, if it is given, the ID coverage is at least `min_coverage`.

        Args:
            confidence: (N,) of ID inputs that had no part in fitting or choosing anything, like all data given here.
            scores: (N, S) of them, or None where the selector was fitted without.
            correct: (N,) whether the model's answers to them are right.
            outlier_confidence: (M,) of a random sample of the outliers meant.
            outlier_scores: (M, S) of them, or None.
            max_error: the largest error among accepted ID inputs.
            max_outliers: the largest share of outliers that are accepted.
            min_coverage: the smallest share of ID inputs that are accepted; None: not promised.
            delta: the probability, over the data given, that the certificate is wrong.
            population: what the outliers are, in words.
            coverages: the thresholds tried are those of these coverages on the data of `fit`.
            starts: from how many places on that grid the tests start, each with its share of `delta`.

        If a threshold is certified, it is put in force. See `Certificate` for what is promised, and what is not.
        """
        promise = Promise(max_error, max_outliers, min_coverage, delta, population)
        gate, _, c = self._held_out(confidence, scores, correct)
        outliers = self.ranked(checks.unit_interval("outlier_confidence", outlier_confidence), outlier_scores)
        if self.outlier_gates is not None and _same(outliers, self.outlier_gates):
            raise InputError("the outliers are those the selector was fitted on: a certificate needs others")
        found = certify_promise(gate, c, outliers, self._grid(coverages), promise, starts=starts)
        if found.threshold is not None:
            self.tau = torch.full_like(self.tau, found.threshold)
        return found

    def _held_out(self, confidence: Any, scores: Any, correct: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`ranking`, confidence and correctness (n,) of data that are not those of `fit`."""
        r = checks.unit_interval("confidence", confidence)
        c = checks.correctness("correct", correct)
        checks.same_length("correct", c, "confidence", r)
        gate = self.ranked(r, scores)
        if self._fitted_on(gate):
            raise InputError("confidence and scores are those the selector was fitted on: a guarantee needs others")
        return gate, r, c

    def _grid(self, coverages: Sequence[float]) -> list[Threshold]:
        """The thresholds of `coverages` on the data of `fit`, from small to large coverage."""
        if not coverages:
            raise InputError("coverages is empty")
        return [threshold_for_coverage(self.gates, coverage) for coverage in sorted(coverages)]

    def _fitted_on(self, gate: Tensor) -> bool:
        """Whether `gate` (n,) are the outputs on the data of `fit`, up to rounding; constant outputs never are."""
        return _same(gate, self.gates)

    def _check_fitted(self) -> None:
        if self.gates.numel() == 0:
            raise InputError("the selector is not fitted: call fit(confidence, scores, correct) first")

    def _inputs(self, confidence: Any, scores: Any) -> tuple[Tensor, Tensor]:
        r = checks.unit_interval("confidence", confidence).to(self.gates)
        s = r.new_empty(len(r), 0) if scores is None else score_columns(scores, r)
        return r, s

    def _remember(self: Self, gate: Tensor, calibrator: Calibrator | str | None = None) -> Self:
        self.calibrator = fingerprint_of(calibrator)
        self.gates = gate.sort().values
        self.tau = gate.new_tensor(math.nan)
        return self


def _same(gate: Tensor, known: Tensor) -> bool:
    """Whether `gate` (n,) holds what `known` (n,), sorted, holds, up to rounding; constants never do."""
    varies = float(known[-1] - known[0]) > 1e-4
    return varies and gate.shape == known.shape and torch.allclose(gate.sort().values, known, 0, 1e-6)


def score_columns(scores: Any, confidence: Tensor, whose: str = "") -> Tensor:
    """Checked outlier scores (N, S), on the device and in the dtype of the confidence (N,)."""
    name = f"{whose}scores"
    result = checks.tensor(name, scores)
    if result.dim() != 2 or not result.is_floating_point():
        raise InputError(f"{name} must be floating point of shape (N, S), not {result.dtype} {tuple(result.shape)}")
    checks.same_length(name, result, f"{whose}confidence", confidence)
    return checks.finite(name, result).to(confidence)
