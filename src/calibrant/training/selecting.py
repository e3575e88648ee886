"""The last stages: outlier scores of the members' features, then the selector and its threshold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.calibrators import Calibrator
from calibrant.config.groups import OutlierSettings, SelectorSettings
from calibrant.config.loading import Settings
from calibrant.data import Augmentation, split_indices
from calibrant.detectors import OutlierScores
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.selective import BaseSelector, Certificate, ConfidenceSelector, Selector, Training
from calibrant.training.calibrating import calibrate_sets
from calibrant.training.keys import keeps_view_probabilities
from calibrant.training.predicting import InOrder, predict, prediction_sets, summary
from calibrant.training.randomness import derive
from calibrant.training.training_data import Examples, TrainingData

_SETTINGS: Mapping[str, Mapping[str, str]] = {
    "calibration": {"eta": "eta", "width": "width", "variant": "variant", "group": "group", "zeta": "zeta"},
    "classification": {"coverage": "target_coverage", "penalty": "penalty"},
}
"""The options of objectives that have settings of their own, by the names of these."""


@dataclass(frozen=True)
class Scored:
    """Fitted outlier scores, the predictions with them, and the validation data's views (V, N, ...) for a selector."""

    scorer: OutlierScores
    predictions: dict[str, Predictions]
    views: dict[str, Tensor]


@dataclass(frozen=True)
class Selection:
    """What decides for a scheme, and what it says: a selector, the scores it reads, and the predictions with both.

    The predictions went through the `calibrator`, if there is one. A scheme without a selector of its own has a rule,
    or else the confidence, in its place; the confidence has a threshold that accepts everything. `threshold` is None
    where the selector's own is in force.
    """

    selector: BaseSelector
    scorer: OutlierScores | None
    predictions: dict[str, Predictions]
    threshold: float | None = None
    calibrator: Calibrator | None = None
    certificate: Certificate | None = None


def score_sets(
    ensemble: Ensemble, data: TrainingData, settings: Settings, *, about: str, progress: bool | None = False
) -> Scored:
    """Fit the outlier scores to training features and score every set; the same passes give the predictions."""

    def run(part: Examples, augmentation: Augmentation | None = None, seed: int = 0) -> Predictions:
        loader = InOrder(part, settings.engine.predict_batch_size, augmentation, seed)
        layer, description = settings.backbone.feature_layer, f"{about}: {part.name or len(part)}"
        return predict(ensemble, loader, layer, description=description, progress=progress)

    scorer = build_scorer(settings.outliers, settings.seed)
    reference = run(_reference(data.train, settings.outliers, settings.seed))
    scorer.fit(**read_members(scorer, reference, settings.outliers), labels=reference.labels)
    predictions, scores = {}, {}
    for name, part in prediction_sets(data).items():
        predictions[name] = run(part)
        scores[name] = scorer.score(**read_members(scorer, predictions[name], settings.outliers))
    views = [(predictions["validation"], scores["validation"])]
    augmentation = Augmentation(settings.augmentation.padding, settings.augmentation.flip)
    for view in range(1, settings.selector.views):
        view_predictions = run(data.validation, augmentation, derive(settings.seed, "selector view", view))
        views.append((view_predictions, scorer.score(**read_members(scorer, view_predictions, settings.outliers))))
    scored = {name: _with_scores(part, scorer, scores[name]) for name, part in predictions.items()}
    kept = _views(views, build_selector(settings.selector, settings.seed))
    if keeps_view_probabilities(settings):
        kept["probabilities"] = torch.stack([part.probabilities for part, _ in views])
    return Scored(scorer, scored, kept)


def _with_scores(predictions: Predictions, scorer: OutlierScores, scores: Tensor) -> Predictions:
    return replace(predictions, scores={**predictions.scores, **dict(zip(scorer.scores, scores.unbind(1)))})


def _views(views: Sequence[tuple[Predictions, Tensor]], selector: Selector) -> dict[str, Tensor]:
    """What `selector` is fitted to, of the validation data and its augmented copies: (V, N, ...) each."""
    columns = [selector.columns(scores, predictions.probabilities) for predictions, scores in views]
    return {
        "confidence": torch.stack([predictions.confidence for predictions, _ in views]),
        "scores": torch.stack(columns),
        "correct": torch.stack([predictions.correct for predictions, _ in views]),
        "cross_entropy": torch.stack([predictions.cross_entropy for predictions, _ in views]),
    }


def calibrate_scored(calibrator: Calibrator | None, scored: Scored, selector: Selector) -> Scored:
    """`scored` as `calibrator` changes it: the predictions, and what `selector` is fitted to."""
    if calibrator is None:
        return scored
    validation = scored.predictions["validation"]
    outlier_scores = scored.views["scores"][..., : len(scored.scorer.scores)]
    probabilities = scored.views.get("probabilities", validation.probabilities[None])
    raw = [Predictions.from_probabilities(view, validation.labels) for view in probabilities]
    views = [(calibrator.calibrate(part), scores) for part, scores in zip(raw, outlier_scores)]
    return replace(scored, predictions=calibrate_sets(calibrator, scored.predictions), views=_views(views, selector))


def keep_scores(stage: Stage, scored: Scored) -> Scored:
    """Make the scores the result of `stage`; what is returned has the summary of the predictions."""
    sets = {f"set:{name}": part.columns(scored.scorer.scores) for name, part in scored.predictions.items()}
    views = {f"view:{name}": value for name, value in scored.views.items()}
    files = {"scores.safetensors": {**sets, **views}, "scorer.safetensors": scored.scorer.state_dict()}
    stage.finish({"scorer": scored.scorer.config()}, files)
    kept = {
        name: _with_scores(summary(part), scored.scorer, sets[f"set:{name}"])
        for name, part in scored.predictions.items()
    }
    return replace(scored, predictions=kept)


def kept_scores(stage: Stage, predictions: Mapping[str, Predictions]) -> Scored:
    """What `keep_scores` made the result of `stage`, with the kept `predictions`."""
    scorer = OutlierScores.from_state(stage.result["scorer"], stage.tensors("scorer.safetensors"))
    kept = stage.tensors("scores.safetensors")
    scored = {name: _with_scores(part, scorer, kept[f"set:{name}"]) for name, part in predictions.items()}
    return Scored(scorer, scored, {name[5:]: value for name, value in kept.items() if name.startswith("view:")})


def build_scorer(settings: OutlierSettings, seed: int) -> OutlierScores:
    """The outlier scores that the settings describe, not fitted."""
    options: dict[str, dict[str, Any]] = {
        "density": {"bandwidth": settings.bandwidth},
        "neighbors": {"k": settings.neighbors, "distance": settings.neighbor_distance},
        "lof": {"k": settings.lof_neighbors},
        "forest": {"trees": settings.trees},
    }
    chosen = {n: {**options.get(n, {}), **settings.options.get(n, {})} for n in (*options, *settings.options)}
    return OutlierScores(
        settings.scores,
        options={name: values for name, values in chosen.items() if name in settings.scores},
        max_points=settings.max_points or 2**62,
        seed=seed,
    )


def _reference(train: Examples, settings: OutlierSettings, seed: int) -> Examples:
    """The training examples whose features are kept."""
    if settings.max_points is None or settings.max_points >= len(train):
        return train
    chosen = split_indices(len(train), {"reference": settings.max_points}, derive(seed, "reference") >> 1)
    return train.subset(chosen["reference"])


def read_members(scorer: OutlierScores, predictions: Predictions, settings: OutlierSettings) -> dict[str, Tensor]:
    """The features (K, N, D) and logits (K, N, C) that `scorer` reads, or (1, N, ...) averaged over the members."""
    if predictions.features is None and "features" in scorer.reads:
        raise InputError(
            "the network has no linear layer whose input could be the features; set backbone.feature_layer"
        )
    read: dict[str, Tensor] = {name: getattr(predictions, name) for name in scorer.reads}
    averaged = settings.average == "features"
    return {name: value.mean(0, keepdim=True) if averaged else value for name, value in read.items()}


def kept_selector(stage: Stage) -> Selector:
    """The selector that `fit_selector` made the result of `stage`."""
    return Selector.from_state(stage.result["selector"], stage.tensors("selector.safetensors"))


def selection_of(selector: Selector, scored: Scored, calibrator: Calibrator | None = None) -> Selection:
    """`selector` with what it says of `scored`, which went through `calibrator`."""
    return Selection(
        selector,
        scored.scorer,
        {name: replace(p, selection=_acceptance(selector, scored, p)) for name, p in scored.predictions.items()},
        calibrator=calibrator,
    )


def confidence_selection(predictions: dict[str, Predictions], calibrator: Calibrator | None = None) -> Selection:
    """Of a scheme without a selector: it remembers the confidence of the validation data, and accepts everything."""
    selector = ConfidenceSelector().fit(predictions["validation"].confidence, calibrator=calibrator)
    return Selection(selector, None, predictions, -math.inf, calibrator)


def fit_selector(
    stage: Stage, settings: SelectorSettings, scored: Scored, seed: int, outliers: Predictions | None = None
) -> Selector:
    """Fit the selector to validation data, set its threshold, and make it the result of `stage`; returns it.

    `outliers`, with their scores, are for an objective that needs some.
    """
    selector = build_selector(settings, seed)
    views = scored.views
    more: dict[str, Any] = {name: views[name] for name in selector.objective.needs if name != "outliers"}
    if outliers is not None:
        read = selector.columns(outliers.columns(scored.scorer.scores), outliers.probabilities)
        more |= {"outlier_confidence": outliers.confidence, "outlier_scores": read}
    behind = scored.predictions["validation"].calibrator
    selector.fit(views["confidence"], views["scores"], views["correct"], **more, calibrator=behind)
    if settings.threshold == "test" and "test" in scored.predictions:
        test = scored.predictions["test"]
        read = selector.columns(test.columns(scored.scorer.scores), test.probabilities)
        threshold = selector.threshold(settings.coverage, test.confidence, read)
    else:
        threshold = selector.threshold(settings.coverage)
    about = {"selector": selector.config(), "threshold": threshold.value, "coverage": threshold.achieved}
    stage.finish(about, {"selector.safetensors": selector.state_dict()})
    return selector


@torch.no_grad()
def _acceptance(selector: Selector, scored: Scored, predictions: Predictions) -> Tensor:
    return selector.acceptance(predictions.probabilities, predictions.columns(scored.scorer.scores))


def build_selector(settings: SelectorSettings, seed: int) -> Selector:
    """The selector that the settings describe, not fitted."""
    training = Training(
        batch_size=settings.batch_size,
        steps=settings.steps,
        learning_rate=settings.rate,
        weight_decay=settings.weight_decay,
        holdout=settings.holdout,
        optimizer=settings.optimizer,
    )
    places = {"hidden": "hidden", "entropy": "entropy", **_SETTINGS.get(settings.objective, {})}
    for option in settings.options:
        if option in places:
            raise InputError(f"selector.options repeats {option}: set selector.{places[option]} instead")
    own: dict[str, Any] = {option: getattr(settings, name) for option, name in places.items()}
    return Selector(settings.objective, **{**settings.options, **own, "training": training, "seed": seed})
