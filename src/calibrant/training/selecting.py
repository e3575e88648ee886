"""The last stages: outlier scores of the members' features, then the selector and its threshold."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from calibrant.config.schemes import Scheme
from calibrant.data import Augmentation, split_indices
from calibrant.detectors import OutlierScores
from calibrant.predictions import Predictions
from calibrant.runs.stages import Stage
from calibrant.selective import BaseSelector, ConfidenceSelector, Selector, Training
from calibrant.training import keys
from calibrant.training.predicting import InOrder, keep, predict, predict_stage, prediction_sets, stage_of
from calibrant.training.randomness import derive
from calibrant.training.training_data import Examples

if TYPE_CHECKING:
    from calibrant.config.groups import OutlierSettings, SelectorSettings
    from calibrant.posteriors.ensemble import Ensemble
    from calibrant.training.workspace import Workspace


@dataclass(frozen=True)
class Scored:
    """Fitted outlier scores, the predictions with them, and the validation data's views (V, N, ...) for a selector."""

    stage: Stage
    scorer: OutlierScores
    predictions: dict[str, Predictions]
    views: dict[str, Tensor]


@dataclass(frozen=True)
class Selection:
    """What decides for a scheme, and what it says: a selector, the scores it reads, and the predictions with both.

    Schemes without a selector of their own have the confidence in its place, and a threshold that accepts everything.
    """

    selector: BaseSelector
    scorer: OutlierScores | None
    predictions: dict[str, Predictions]
    threshold: float | None = None


def score_stage(workspace: Workspace, scheme: Scheme) -> Scored:
    """Fit the outlier scores to training features and score every set.

    The same passes over the data give the predictions, so the predict stage is written along, if it is missing.
    """
    base = replace(scheme, selective=False)
    predicted = stage_of(workspace, base)
    stage = workspace.run.stage(f"score-{base}", keys.score_inputs(workspace.settings, predicted.key))
    if not workspace.finished(stage):
        ensemble = workspace.ensemble(base)
        with workspace.unfinished(predicted) as predict_too, workspace.unfinished(stage) as to_do:
            if to_do and workspace.fabric.is_global_zero:
                _score(workspace, ensemble, stage, predicted if predict_too else None)
    scorer = OutlierScores.from_state(stage.result["scorer"], stage.tensors("scorer.safetensors"))
    kept = stage.tensors("scores.safetensors")
    predictions = {
        name: replace(part, scores={**part.scores, **dict(zip(scorer.scores, kept[f"set:{name}"].unbind(1)))})
        for name, part in predict_stage(workspace, base).items()
    }
    views = {name[5:]: value for name, value in kept.items() if name.startswith("view:")}
    return Scored(stage, scorer, predictions, views)


def _score(workspace: Workspace, ensemble: Ensemble, stage: Stage, predicted: Stage | None) -> None:
    settings, data = workspace.settings, workspace.data

    def run(part: Examples, augmentation: Augmentation | None = None, seed: int = 0) -> Predictions:
        loader = InOrder(part, settings.engine.predict_batch_size, augmentation, seed)
        layer, about = settings.backbone.feature_layer, f"{stage.name}: {part.name or len(part)}"
        return predict(ensemble, loader, layer, description=about, progress=workspace.progress)

    scorer = _scorer(settings.outliers, settings.seed)
    scorer.fit(_features(run(_reference(data.train, settings.outliers, settings.seed)), settings.outliers))
    predictions = {name: run(part) for name, part in prediction_sets(data).items()}
    scores = {n: scorer.score(_features(found, settings.outliers)) for n, found in predictions.items()}
    views = _views(workspace, run, scorer, predictions["validation"], scores["validation"])
    if predicted is not None:
        keep(predicted, predictions)
    tensors = {**{f"set:{name}": value for name, value in scores.items()}, **views}
    files = {"scores.safetensors": tensors, "scorer.safetensors": scorer.state_dict()}
    stage.finish({"scorer": scorer.config()}, files)


def _views(
    workspace: Workspace,
    run: Callable[..., Predictions],
    scorer: OutlierScores,
    plain: Predictions,
    plain_scores: Tensor,
) -> dict[str, Tensor]:
    """What the selector is fitted to, of the validation data and its augmented copies: (V, N, ...) each."""
    settings = workspace.settings
    columns = build_selector(settings.selector, settings.seed).columns
    augmentation = Augmentation(settings.augmentation.padding, settings.augmentation.flip)
    views = [(plain, plain_scores)]
    for view in range(1, settings.selector.views):
        predictions = run(workspace.data.validation, augmentation, derive(settings.seed, "selector view", view))
        views.append((predictions, scorer.score(_features(predictions, settings.outliers))))
    return {
        "view:confidence": torch.stack([predictions.confidence for predictions, _ in views]),
        "view:scores": torch.stack([columns(scores, predictions.probabilities) for predictions, scores in views]),
        "view:correct": torch.stack([predictions.correct for predictions, _ in views]),
        "view:cross_entropy": torch.stack([predictions.cross_entropy for predictions, _ in views]),
    }


def _scorer(settings: OutlierSettings, seed: int) -> OutlierScores:
    options: dict[str, dict[str, Any]] = {
        "density": {"bandwidth": settings.bandwidth},
        "neighbors": {"k": settings.neighbors, "distance": settings.neighbor_distance},
        "lof": {"k": settings.lof_neighbors},
        "forest": {"trees": settings.trees},
    }
    return OutlierScores(
        settings.scores,
        options={name: values for name, values in options.items() if name in settings.scores},
        max_points=settings.max_points or 2**62,
        seed=seed,
    )


def _reference(train: Examples, settings: OutlierSettings, seed: int) -> Examples:
    """The training examples whose features are kept."""
    if settings.max_points is None or settings.max_points >= len(train):
        return train
    chosen = split_indices(len(train), {"reference": settings.max_points}, derive(seed, "reference") >> 1)
    return train.subset(chosen["reference"])


def _features(predictions: Predictions, settings: OutlierSettings) -> Tensor:
    """Features (K, N, D), or (1, N, D) averaged over the members."""
    if predictions.features is None:
        raise ValueError(
            "the network has no linear layer whose input could be the features; set backbone.feature_layer"
        )
    features: Tensor = predictions.features
    return features.mean(0, keepdim=True) if settings.average == "features" else features


def select_stage(workspace: Workspace, scheme: Scheme, scored: Scored) -> Selection:
    """Fit the selector to validation data and set its threshold."""
    settings = workspace.settings.selector
    stage = workspace.run.stage(f"select-{scheme}", keys.select_inputs(workspace.settings, scored.stage.key))
    if not workspace.finished(stage):
        with workspace.unfinished(stage) as to_do:
            if to_do and workspace.fabric.is_global_zero:
                _select(stage, settings, scored, workspace.settings.seed)
    selector = Selector.from_state(stage.result["selector"], stage.tensors("selector.safetensors"))
    return Selection(
        selector,
        scored.scorer,
        {name: replace(p, selection=_acceptance(selector, scored, p)) for name, p in scored.predictions.items()},
    )


def confidence_selection(predictions: dict[str, Predictions]) -> Selection:
    """Of a scheme without a selector: it remembers the confidence of the validation data, and accepts everything."""
    return Selection(ConfidenceSelector().fit(predictions["validation"].confidence), None, predictions, -math.inf)


def _select(stage: Stage, settings: SelectorSettings, scored: Scored, seed: int) -> None:
    selector = build_selector(settings, seed)
    views = scored.views
    loss = views["cross_entropy"] if settings.objective == "classification" else None
    selector.fit(views["confidence"], views["scores"], views["correct"], cross_entropy=loss)
    if settings.threshold == "test" and "test" in scored.predictions:
        test = scored.predictions["test"]
        read = selector.columns(test.columns(scored.scorer.scores), test.probabilities)
        threshold = selector.threshold(settings.coverage, test.confidence, read)
    else:
        threshold = selector.threshold(settings.coverage)
    summary = {"selector": selector.config(), "threshold": threshold.value, "coverage": threshold.achieved}
    stage.finish(summary, {"selector.safetensors": selector.state_dict()})


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
    )
    if settings.objective == "classification":
        own: dict[str, Any] = {"coverage": settings.target_coverage, "penalty": settings.penalty}
    else:
        own = {"eta": settings.eta, "width": settings.width, "variant": settings.variant, "group": settings.group}
    own |= {"hidden": settings.hidden, "entropy": settings.entropy}
    return Selector(settings.objective, training=training, seed=seed, **own)
