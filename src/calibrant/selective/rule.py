"""From what the members say to a decision: means, calibrator, outlier scores, selector, threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.calibrators.base import Calibrator, fingerprint_of
from calibrant.detectors import OutlierScores
from calibrant.detectors.logits import logit_detector, logit_names
from calibrant.metrics.arguments import largest
from calibrant.predictions import Decision, Predictions
from calibrant.selective.base import BaseSelector
from calibrant.selective.thresholds import Threshold
from calibrant.slots import names


class DecisionRule(nn.Module):
    """All of a predictor but its networks; the arguments are those of `Predictor`, `total` is K."""

    def __init__(
        self,
        total: int,
        outliers: OutlierScores | None,
        selector: BaseSelector | None,
        threshold: float | Threshold | None,
        ood_score: str,
        classes: Sequence[str] | None,
        calibrator: Calibrator | None = None,
    ) -> None:
        super().__init__()
        self.calibrator, self.calibrated_by = calibrator, _checked_calibrator(calibrator, selector)
        self.outliers, self.selector, self.ood_score = outliers, selector, ood_score
        self.classes = None if classes is None else tuple(str(name) for name in classes)
        self.own_threshold = None if threshold is None else _number(float(threshold))
        self.score_names: tuple[str, ...] = () if outliers is None else outliers.scores
        fitted = total if outliers is None else len(outliers.members)
        if fitted not in (1, total):
            raise InputError(f"outliers were fitted to {fitted} members, but the ensemble has {total}")
        self.averages_features = fitted == 1 < total
        choices = ("confidence", *logit_names(), *self.score_names)
        if ood_score not in choices:
            plugin = "" if ood_score in names("detector") else "; another one needs --plugin MODULE"
            raise InputError(f"ood_score must be one of {', '.join(choices)}, not {ood_score!r}{plugin}")
        computed = ood_score == "confidence" or ood_score in self.score_names
        self.logit_detector = None if computed else logit_detector(ood_score)
        self.read = _read_columns(selector, self.score_names)
        if selector is not None:
            scores = selector.columns(torch.zeros(1, len(self.score_names))[:, self.read], torch.ones(1, 1))
            selector.relaxed(torch.ones(1), scores)  # refuses what does not fit
        _ = self.threshold

    @property
    def threshold(self) -> float:
        """What the selector's output, or the confidence, is compared with."""
        if self.own_threshold is not None:
            return self.own_threshold
        return -math.inf if self.selector is None else _number(float(self.selector.tau))

    def member_outputs(self, k: int, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Member k's logits (B, C), and what else is averaged over members, (B, E): outlier scores or features."""
        if logits.dim() != 2:
            raise InputError(f"the module must return logits (B, C), not shape {tuple(logits.shape)}")
        if self.classes is not None and len(self.classes) != logits.shape[1]:
            raise InputError(f"classes has {len(self.classes)} names, but the module {logits.shape[1]} outputs")
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if self.outliers is None:
            return logits, logits.new_empty(logits.shape[0], 0)
        if features is None and "features" in self.outliers.reads:
            raise InputError("feature_layer must be named: the module ran no linear layer to take features from")
        read = {"features": features, "logits": logits}
        inputs = [value for name, value in read.items() if value is not None and name in self.outliers.reads]
        return logits, torch.cat(inputs, 1) if self.averages_features else self._score(k, inputs)

    def decide(self, logits: Tensor, extra: Tensor, threshold: float) -> Decision:
        """Decisions from logits (n, B, C) of n members, and what else is averaged over them, (n, B, E)."""
        scores, predictions = self._scores(extra.mean(0)), Predictions.from_probabilities(logits.softmax(-1).mean(0))
        if self.calibrator is not None:
            predictions = self.calibrator.applied(predictions, self.calibrated_by)
        probabilities, selector = predictions.probabilities, self.selector
        selection = None if selector is None else selector.acceptance(probabilities, scores[:, self.read])
        predictions = replace(
            predictions,
            selection=selection,
            trust=selection if selector is not None and selector.probability else None,
            ood_score=self._ood_score(logits, predictions.confidence, scores),
            scores={name: scores[:, column] for column, name in enumerate(self.score_names)},
        )
        acceptance = predictions.acceptance
        members = torch.full_like(acceptance, logits.shape[0], dtype=torch.long)
        return Decision(predictions, acceptance >= threshold, members, threshold, self.classes)

    def acceptance(self, probabilities: Tensor, extra: Tensor) -> Tensor:
        """What is compared with the threshold, (B,), from means over members, which are calibrated here."""
        scores, probabilities = self._scores(extra), self.calibrated(probabilities)
        if self.selector is None:
            return largest(probabilities)
        return self.selector.acceptance(probabilities, scores[:, self.read])

    def calibrated(self, probabilities: Tensor) -> Tensor:
        """Calibrated probabilities (B, C) of the members' mean probabilities (B, C)."""
        return probabilities if self.calibrator is None else self.calibrator.of_mean(probabilities)

    def _scores(self, extra: Tensor) -> Tensor:
        """Outlier scores (B, S) from the means over members."""
        if self.outliers is None:
            return extra
        if not self.averages_features:
            return self.outliers.pool(extra)
        classes = self.outliers.classes or 0
        means = torch.split(extra, [extra.shape[1] - classes, classes], 1) if classes else (extra,)
        return self.outliers.pool(self._score(0, [part for part in means if part.shape[1]]))

    def _score(self, k: int, inputs: Sequence[Tensor]) -> Tensor:
        """What is averaged over members, (B, E), of the features, the logits or both, whichever are read."""
        assert self.outliers is not None
        member, read = self.outliers.members[k], self.outliers.reads
        queries = [value.to(next(member.buffers())) for value in inputs]
        if torch.compiler.is_exporting():  # the number of blocks must not become part of the program
            result: Tensor = member(**dict(zip(read, queries)))
            return result
        blocks = zip(*(torch.split(value, self.outliers.block_size) for value in queries))
        return torch.cat([member(**dict(zip(read, block))) for block in blocks])

    def _ood_score(self, logits: Tensor, confidence: Tensor, scores: Tensor) -> Tensor:
        if self.ood_score == "confidence":
            return 1 - confidence
        if self.ood_score in self.score_names:
            return scores[:, self.score_names.index(self.ood_score)]
        assert self.logit_detector is not None
        return self.logit_detector.score_rows(logits)


def _read_columns(selector: BaseSelector | None, scores: tuple[str, ...]) -> list[int]:
    """The columns of the outlier scores that `selector` reads."""
    if selector is None or selector.names is None:
        return list(range(len(scores)))
    missing = [name for name in selector.names if name not in scores]
    if missing:
        raise InputError(f"the selector reads the score {missing[0]}, but outliers has {', '.join(scores) or 'none'}")
    return [scores.index(name) for name in selector.names]


def _checked_calibrator(calibrator: Calibrator | None, selector: BaseSelector | None) -> str:
    """The fingerprint of `calibrator`, refused beside a selector that was fitted to other confidences."""
    if calibrator is not None:
        calibrator.check_fitted()
    here = fingerprint_of(calibrator)
    if selector is not None and selector.calibrator != here:
        raise InputError(
            f"the selector was fitted to confidences of the calibrator {selector.calibrator}, but the rule's is {here};"
            " pass that calibrator, or fit the selector again: fit(..., calibrator=calibrator)"
        )
    return here


def _number(threshold: float) -> float:
    if math.isnan(threshold):
        raise InputError("threshold is not set: call selector.threshold(coverage=...) first, or pass one")
    return threshold
