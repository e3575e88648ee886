"""The systems of the study `trust`: rules that say how much to accept each answer, and how probable it is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calibrant.predictions import Predictions
from calibrant.selective import SIRC, BaseSelector, Trust
from calibrant.selective.trust import choose_confidence
from calibrant.studies.trust_outputs import DETECTORS, FITTING, RULE, SYNTHETIC

Parts = Mapping[str, Predictions]
LITTLE = 20  # outliers of the system that has few


@dataclass(frozen=True)
class Said:
    """Of some inputs: what a threshold is compared with, and the probability that the answer is right, (N,) each."""

    acceptance: Tensor
    right: Tensor


@dataclass(frozen=True)
class TrustSystem:
    """A rule on `parts`; `say(predictions, share)` is told the share of outliers that it is to assume.

    `share` fixes that share: None takes the true one, "estimated" what the stream itself says.
    """

    parts: Parts
    say: Callable[[Predictions, float], Said]
    share: float | str | None = None
    trust: Trust | None = None


def by_confidence(parts: Parts, column: str | None = None) -> TrustSystem:
    """A threshold on the confidence, or on a kept column in place of it."""

    def say(predictions: Predictions, share: float) -> Said:
        value = predictions.confidence if column is None else predictions.scores[column]
        return Said(value, value)

    return TrustSystem(parts, say)


def by_selector(parts: Parts) -> TrustSystem:
    """The paper's selector, whose outputs are in `selection`."""
    return TrustSystem(parts, lambda predictions, share: Said(predictions.selection, predictions.confidence))


def by_sirc(parts: Parts, detector: str = "knn") -> TrustSystem:
    """SIRC on the scaled confidence and one detector; no outliers are needed."""
    rule = SIRC(detector).fit(parts[FITTING])

    def say(predictions: Predictions, share: float) -> Said:
        return Said(_relaxed(rule, predictions, (detector,)), predictions.confidence)

    return TrustSystem(parts, say)


def by_trust(parts: Parts, fitted: Trust, share: float | str | None = None) -> TrustSystem:
    """Trust at the share that it is to assume."""

    def say(predictions: Predictions, assumed: float) -> Said:
        value = fitted.with_share(assumed).of(predictions)
        return Said(value, value)

    return TrustSystem(parts, say, share, fitted)


def trust_systems(before: Parts, after: Parts) -> dict[str, TrustSystem]:
    """All systems on the networks `before` and `after` OCM, by name."""
    own = Trust().fit(before[FITTING], before[RULE], DETECTORS)
    little = Trust().fit(before[FITTING], before[RULE][:LITTLE], DETECTORS)
    made = Trust().fit(before[FITTING], before[SYNTHETIC], DETECTORS)
    systems = {
        "confidence": by_confidence(before, "raw_confidence"),
        "temperature + confidence": by_confidence(before),
        "temperature + confidence after OCM": by_confidence(after),
        "SIRC": by_sirc(before),
        "trust": by_trust(before, own),
        f"trust, {LITTLE} outliers": by_trust(before, little),
        "trust, synthetic outliers": by_trust(before, made),
        "trust, 10 % assumed": by_trust(before, own, 0.1),
        "trust, 50 % assumed": by_trust(before, own, 0.5),
        "trust, share estimated": by_trust(before, own, "estimated"),
    }
    candidates = {"before": before, "after": _with_confidence(before, after)}
    candidates["smaller"] = _smaller(before, candidates["after"])
    pairs = {name: (parts[FITTING], parts[RULE]) for name, parts in candidates.items()}
    chosen = choose_confidence(own.with_share(0.1), pairs)
    systems["trust, confidence after OCM"] = by_trust(candidates["after"], own)
    systems["trust, smaller confidence"] = by_trust(candidates["smaller"], own)
    systems[f"trust, chosen confidence ({chosen})"] = by_trust(candidates[chosen], own)
    return systems


def _with_confidence(scores: Parts, answers: Parts) -> dict[str, Predictions]:
    """The answers of one network with the detectors' scores of another."""
    return {name: replace(answers[name], scores=part.scores) for name, part in scores.items()}


def _smaller(before: Parts, after: Parts) -> dict[str, Predictions]:
    """The answers of `after` with the smaller of the two confidences."""
    return {
        name: replace(after[name], confidence=torch.minimum(part.confidence, after[name].confidence))
        for name, part in before.items()
    }


def _relaxed(rule: BaseSelector, predictions: Predictions, names: tuple[str, ...]) -> Tensor:
    return rule.relaxed(predictions.confidence, predictions.columns(names))
