"""The rule of a scheme that has no selector of its own: trust, or SIRC, on calibrated confidences and detectors.

Four fifths of the validation data fit calibrator and rule; one fifth is kept for a certificate. The rule's outliers are
some of D_u, which has not trained the network of a scheme without OCM, and others of D_u are kept for a certificate.
Without D_u they are made from the validation inputs, and where none can be made the rule is SIRC, which needs none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from calibrant import InputError
from calibrant.calibrators import Calibrator
from calibrant.config.loading import Settings
from calibrant.config.rule_settings import RuleSettings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData, DataError
from calibrant.data.synthetic.tokenized import synthesize_inputs
from calibrant.detectors import OutlierScores
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.selective import SIRC, BaseSelector, Certificate, Trust
from calibrant.slots import build, lookup
from calibrant.training.predicting import InOrder, predict
from calibrant.training.randomness import derive
from calibrant.training.selecting import Selection, read_members
from calibrant.training.training_data import Examples, TrainingData

RULES: Mapping[str, type[BaseSelector]] = {"Trust": Trust, "SIRC": SIRC}
STATE = "rule.safetensors"
FEWEST = 20  # validation examples, and outliers of D_u if there are as many, that a rule is fitted to
_FEW = 100  # of fewer validation examples a fifth certifies next to nothing
FOLDS = 5  # of trust's cross-validation
_MOST = 1000  # outliers for the rule, and as many for its certificate
_SHARE = 0.8  # of the validation data, for fitting


@dataclass(frozen=True)
class RuleOutliers:
    """Outliers that fit the rule, and others of the same `population` for its certificate; None: there are none."""

    fitting: Examples | None
    certifying: Examples | None = None
    population: str = ""


def fitting_part(settings: Settings, count: int) -> Tensor:
    """Which of `count` validation examples fit calibrator and rule.

    Four fifths, or all where there are fewer than 100 and no certificate is asked for.
    """
    return _order(count, settings.seed, "validation")[: _cut(settings, count)]


def certifying_part(settings: Settings, count: int) -> Tensor:
    """Which of `count` validation examples nothing is fitted to: all others."""
    return _order(count, settings.seed, "validation")[_cut(settings, count) :]


def _cut(settings: Settings, count: int) -> int:
    return count if count < _FEW and settings.rule.max_error is None else int(_SHARE * count)


def _order(count: int, seed: int, purpose: str) -> Tensor:
    generator = torch.Generator().manual_seed(derive(seed, "rule", purpose))
    return torch.randperm(count, generator=generator)


def rule_outliers(data: TrainingData, settings: Settings) -> RuleOutliers:
    """Those of D_u, or made from the validation inputs; none where they are not needed or cannot be made."""
    needed = (settings.rule.name == "trust", settings.rule.max_error is not None)
    if data.uncertainty is not None:
        fitting, certifying = (p if n else None for p, n in zip(_divided(data.uncertainty, settings), needed))
        return RuleOutliers(fitting, certifying, data.uncertainty.name or "D_u")
    indices = [pick(settings, len(data.validation)) for pick in (fitting_part, certifying_part)]
    seed = derive(settings.seed, "rule", "synthetic")
    try:
        made = [
            _made(data.validation.subset(index), settings.rule, seed + k) if wanted else None
            for k, (index, wanted) in enumerate(zip(indices, needed))
        ]
    except DataError as error:
        if settings.rule.synthesizers is not None:
            raise
        reason = str(error).partition(";")[0]
        if needed[1]:
            raise InputError(f"{reason}: rule.max_error needs outliers; give some as uncertainty data") from None
        warnings.warn(f"{reason}: the rule is SIRC, whose output is no probability", stacklevel=2)
        return RuleOutliers(None)
    return RuleOutliers(made[0], made[1], "synthetic outliers")


def selector_outliers(data: TrainingData, settings: Settings, scheme: Scheme) -> Examples:
    """At most 1,000 outliers for a selector whose objective needs some, such as zeta > 0.

    They are of D_u, or made from the validation inputs where there is none or `scheme` has trained on it.
    """
    if data.uncertainty is not None and not scheme.ocm:
        return _divided(data.uncertainty, settings)[0]
    return _made(data.validation, settings.rule, derive(settings.seed, "selector", "synthetic"))


def _divided(uncertainty: Examples, settings: Settings) -> tuple[Examples, Examples | None]:
    """Examples of D_u for the rule, at most 1,000, and as many others for its certificate; of 20 all fit the rule."""
    order = _order(len(uncertainty), settings.seed, "outliers")
    part = min(_MOST, len(order), max(FEWEST, len(order) // 2))
    others = order[part : 2 * part]
    return uncertainty.subset(order[:part]), uncertainty.subset(others) if len(others) else None


def _made(part: Examples, settings: RuleSettings, seed: int) -> ArrayData:
    inputs, labels = part.take(torch.arange(min(_MOST, len(part))))
    return ArrayData(synthesize_inputs(inputs, labels, settings.synthesizers, seed=seed))


def predict_outliers(
    ensemble: Ensemble, scorer: OutlierScores, calibrator: Calibrator | None, part: Examples, *, settings: Settings
) -> Predictions:
    """What is said of outliers, calibrated, with the detectors' scores."""
    layer = settings.backbone.feature_layer
    said = predict(ensemble, InOrder(part, settings.engine.predict_batch_size), layer)
    found = scorer.score(**read_members(scorer, said, settings.outliers))
    scores = dict(zip(scorer.scores, found.unbind(1)))
    plain = Predictions.from_probabilities(said.probabilities, scores=scores)
    return plain if calibrator is None else calibrator.calibrate(plain)


def fit_rule(
    stage: Stage,
    settings: Settings,
    validation: Predictions,
    detectors: Sequence[str],
    outliers: RuleOutliers,
    say: Callable[[Examples], Predictions],
) -> tuple[BaseSelector, Certificate | None]:
    """Fit the rule, set its threshold, certify it where the settings ask for that, and make it the result of `stage`.

    `detectors` names the scores that the rule may read; `say` predicts outliers. Returns the rule and its certificate.
    """
    part = validation[fitting_part(settings, len(validation))]
    rule: BaseSelector
    if outliers.fitting is None:
        rule = SIRC(detectors[0]).fit(part)
    else:
        rule = Trust(settings.rule.share, folds=FOLDS, seed=settings.seed).fit(part, say(outliers.fitting), detectors)
    set_threshold(rule, settings.rule)
    certificate = None
    if settings.rule.max_error is not None:
        if outliers.certifying is None:
            raise InputError("rule.max_error needs outliers to certify with: give some as uncertainty data")
        certificate = certified(rule, settings, validation, say(outliers.certifying), outliers.population)
    content = None if certificate is None else certificate.to_dict()
    about = {"kind": type(rule).__name__, "config": rule.config(), "certificate": content}
    stage.finish(about, {STATE: rule.state_dict()})
    return rule, certificate


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
    certificate: Certificate | None,
    scorer: OutlierScores,
    predictions: Mapping[str, Predictions],
    calibrator: Calibrator | None,
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


def reading_rule(settings: Settings, network: nn.Module) -> Settings:
    """`settings` with the rule's detectors as the outlier scores.

    Those that read features are left out where `network` has no linear layer to take them from.
    """
    layers = settings.backbone.feature_layer is not None or any(isinstance(m, nn.Linear) for m in network.modules())
    named = settings.rule.detectors
    chosen = named if layers else tuple(n for n in named if "features" not in lookup("detector", n).reads)
    if not chosen:
        raise InputError(
            "rule.detectors all read features, but the network has no linear layer to take them from; name one of"
            " logits, such as energy, or set backbone.feature_layer"
        )
    options = {name: values for name, values in settings.rule.options.items() if name in chosen}
    outliers = settings.outliers.model_copy(update={"scores": chosen, "options": options})
    selector = settings.selector.model_copy(update={"views": 1})  # a rule reads the validation data as it is
    return settings.model_copy(update={"outliers": outliers, "selector": selector})


def enough(settings: Settings, count: int) -> bool:
    """Whether a rule can be fitted with `count` validation examples; if not, warns that the confidence decides."""
    part = len(fitting_part(settings, count))
    if part < FEWEST:
        short = f"{part} validation examples are too few to fit {settings.rule.name} to: about {FEWEST} are needed"
        warnings.warn(f"{short}; the confidence decides instead, and every answer is accepted", stacklevel=3)
    return part >= FEWEST


def check_rule(settings: Settings, scheme: Scheme, data: TrainingData) -> None:
    """Refuse a rule that `scheme` cannot have, or that cannot be fitted or certified with `data`."""
    rule, outliers = settings.rule, data.uncertainty
    if scheme.selective:
        return
    if rule.name == "confidence":
        if rule.max_error is not None:
            raise InputError("rule.max_error needs rule.name=trust or rule.name=sirc: the confidence is not certified")
        return
    if scheme.ocm:
        raise InputError(
            f"rule.name={rule.name} is for schemes without OCM: after OCM the detectors know D_u from training"
            f" and miss other outliers; train {scheme.base}"
        )
    for name in rule.detectors:
        build("detector", name, rule.options.get(name))  # refuses options that do not fit
    if rule.name == "trust" and outliers is not None and len(outliers) < FOLDS:
        raise InputError(f"{len(outliers)} outliers are too few to fit trust to: give about {FEWEST}, or none at all")
    if rule.max_error is None:
        return
    if outliers is not None and len(outliers) <= FEWEST:
        raise InputError(f"rule.max_error needs more than {FEWEST} outliers: the first {FEWEST} fit the rule")
    if (part := len(fitting_part(settings, len(data.validation)))) < FEWEST:
        raise InputError(f"rule.max_error needs more validation data: {part} examples are too few to fit a rule to")
