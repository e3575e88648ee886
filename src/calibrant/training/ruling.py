"""The rule of a scheme that has no selector of its own: trust, or SIRC, on calibrated confidences and detectors.

Four fifths of the validation data fit calibrator and rule; one fifth is kept for a certificate. The rule's outliers are
some of D_u, which has not trained the network of a scheme without OCM; without D_u they are made from the validation
inputs, and where none can be made the rule is SIRC, which needs none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from calibrant.calibrators import Calibrator
from calibrant.config.groups import RuleSettings
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData, DataError
from calibrant.data.synthetic import synthesize
from calibrant.detectors import OutlierScores
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.selective import SIRC, BaseSelector, Certificate, Trust
from calibrant.training.predicting import InOrder, predict
from calibrant.training.randomness import derive
from calibrant.training.selecting import Selection
from calibrant.training.training_data import Examples, TrainingData

RULES: Mapping[str, type[BaseSelector]] = {"Trust": Trust, "SIRC": SIRC}
STATE = "rule.safetensors"
_MOST = 1000  # outliers for the rule, and as many for its certificate
_SHARE = 0.8  # of the validation data, for fitting


@dataclass(frozen=True)
class RuleOutliers:
    """Outliers that fit the rule, and others of the same `population` for its certificate; None: there are none."""

    fitting: Examples | None
    certifying: Examples | None = None
    population: str = ""


def fitting_part(settings: Settings, count: int) -> Tensor:
    """Which of `count` validation examples fit calibrator and rule; the others are kept for the certificate."""
    return _order(count, settings.seed, "validation")[: _cut(count)]


def certifying_part(settings: Settings, count: int) -> Tensor:
    """Which of `count` validation examples nothing is fitted to."""
    return _order(count, settings.seed, "validation")[_cut(count) :]


def _cut(count: int) -> int:
    return max(1, int(_SHARE * count))


def _order(count: int, seed: int, purpose: str) -> Tensor:
    generator = torch.Generator().manual_seed(derive(seed, "rule", purpose))
    return torch.randperm(count, generator=generator)


def rule_outliers(data: TrainingData, settings: Settings) -> RuleOutliers:
    """Those of D_u, or made from the validation inputs; none for SIRC, and where none can be made."""
    if settings.rule.name == "sirc":
        return RuleOutliers(None)
    if data.uncertainty is not None:
        order = _order(len(data.uncertainty), settings.seed, "outliers")
        part = min(_MOST, max(1, len(order) // 2))
        both = (data.uncertainty.subset(order[:part]), data.uncertainty.subset(order[part : 2 * part]))
        return RuleOutliers(*both, data.uncertainty.name or "D_u")
    held_out, seed = data.validation, derive(settings.seed, "rule", "synthetic")
    parts = [pick(settings, len(held_out)) for pick in (fitting_part, certifying_part)]
    try:
        made = [_made(held_out.subset(index), settings.rule, seed + k) for k, index in enumerate(parts)]
    except DataError as error:
        warnings.warn(f"{error}; the rule is SIRC, whose output is no probability", stacklevel=2)
        return RuleOutliers(None)
    return RuleOutliers(made[0], made[1], "synthetic outliers")


def _made(part: Examples, settings: RuleSettings, seed: int) -> ArrayData:
    inputs, labels = part.take(torch.arange(min(_MOST, len(part))))
    return ArrayData(synthesize(inputs, labels, settings.synthesizers, seed=seed))


def predict_outliers(
    ensemble: Ensemble, scorer: OutlierScores, calibrator: Calibrator | None, part: Examples, *, settings: Settings
) -> Predictions:
    """What is said of outliers, calibrated, with the detectors' scores."""
    layer = settings.backbone.feature_layer
    said = predict(ensemble, InOrder(part, settings.engine.predict_batch_size), layer)
    scores = dict(zip(scorer.scores, scorer.score(said).unbind(1)))
    plain = Predictions.from_probabilities(said.probabilities, scores=scores)
    return plain if calibrator is None else calibrator.calibrate(plain)


def fit_rule(
    stage: Stage,
    settings: Settings,
    validation: Predictions,
    outliers: RuleOutliers,
    say: Callable[[Examples], Predictions],
) -> None:
    """Fit the rule, set its threshold, certify it where the settings ask for that, and make it the result of `stage`.

    `say` predicts outliers.
    """
    part = validation[fitting_part(settings, len(validation))]
    rule: BaseSelector
    if outliers.fitting is None:
        rule = SIRC(settings.rule.detectors[0]).fit(part)
    else:
        rule = Trust(settings.rule.share, seed=settings.seed).fit(part, say(outliers.fitting), settings.rule.detectors)
    set_threshold(rule, settings.rule)
    certificate = None
    if settings.rule.max_error is not None:
        if outliers.certifying is None:
            raise ValueError("rule.max_error needs outliers to certify with; name some with --uncertainty")
        certificate = certified(rule, settings, validation, say(outliers.certifying), outliers.population)
    certificate_record = None if certificate is None else certificate.to_dict()
    about = {"kind": type(rule).__name__, "config": rule.config(), "certificate": certificate_record}
    stage.finish(about, {STATE: rule.state_dict()})


def kept_rule(stage: Stage) -> tuple[BaseSelector, Certificate | None]:
    """The rule and the certificate that `fit_rule` made the result of `stage`."""
    content = stage.result["certificate"]
    rule = RULES[stage.result["kind"]].from_state(stage.result["config"], stage.tensors(STATE))
    return rule, None if content is None else Certificate.from_dict(content)


def certified(
    rule: BaseSelector, settings: Settings, validation: Predictions, outliers: Predictions, population: str
) -> Certificate:
    """The certificate that the settings ask for, made from data that nothing was fitted to; it sets the threshold."""
    wanted = settings.rule
    assert wanted.max_error is not None
    assert wanted.max_outliers is not None
    held_out = validation[certifying_part(settings, len(validation))]
    return rule.certify(
        held_out.confidence,
        held_out.columns(rule.names),
        held_out.correct,
        outliers.confidence,
        outliers.columns(rule.names),
        max_error=wanted.max_error,
        max_outliers=wanted.max_outliers,
        min_coverage=wanted.min_coverage,
        delta=wanted.delta,
        population=population,
    )


@torch.no_grad()
def rule_selection(
    rule: BaseSelector,
    scorer: OutlierScores,
    predictions: Mapping[str, Predictions],
    calibrator: Calibrator | None,
    certificate: Certificate | None = None,
) -> Selection:
    """`rule` with what it says of calibrated and scored `predictions`."""

    def decided(part: Predictions) -> Predictions:
        value = rule.acceptance(part.probabilities, part.columns(rule.names))
        return replace(part, selection=value, trust=value if rule.probability else None)

    said = {name: decided(part) for name, part in predictions.items()}
    return Selection(rule, scorer, said, None, calibrator, certificate)


def set_threshold(rule: BaseSelector, settings: RuleSettings) -> None:
    """Put the threshold in force that the settings ask for: by tolerated error for a probability, else by coverage."""
    if settings.coverage is None and isinstance(rule, Trust):
        rule.threshold_for_error(settings.error)
    else:
        rule.threshold(0.9 if settings.coverage is None else settings.coverage)


def check_rule(settings: Settings, scheme: Scheme) -> None:
    """Refuse a rule that a scheme cannot have."""
    if scheme.ocm and not scheme.selective and settings.rule.name != "confidence":
        raise ValueError(
            f"rule.name={settings.rule.name} is for schemes without OCM: after OCM the detectors know D_u from training"
            f" and miss other outliers; train {scheme.base}"
        )
