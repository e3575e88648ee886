"""From a trained scheme to what is deployed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from calibrant.config.schemes import Scheme
from calibrant.deploy import Backbone, Predictor
from calibrant.selective import BaseSelector, ConfidenceSelector

if TYPE_CHECKING:
    from calibrant.training import Workspace


def predictor_of(workspace: Workspace, scheme: Scheme | str) -> Predictor:
    """The predictor of `scheme`: a selective one answers at `selector.coverage`, any other one always.

    Those without a selector of their own remember the confidence of the validation data, so that a coverage can be
    chosen for them, too.
    """
    from calibrant.training.inputs import class_count

    scheme, settings, train = Scheme.parse(scheme), workspace.settings, workspace.data.train
    selector: BaseSelector
    if scheme.selective:
        selection = workspace.selection(scheme)
        selector, scorer, threshold = selection.selector, selection.scorer, None
    else:
        confidence = workspace.outputs(scheme)["validation"].confidence
        selector, scorer, threshold = ConfidenceSelector().fit(confidence), None, -math.inf
    shape = tuple(train.take(torch.tensor([0]))[0].shape[1:])
    own = workspace.network is not None
    return Predictor(
        workspace.ensemble(scheme),
        outliers=scorer,
        selector=selector,
        threshold=threshold,
        classes=train.classes,
        feature_layer=settings.backbone.feature_layer,
        backbone=None if own else Backbone(settings.backbone.name, shape, class_count(train)),
    ).cpu()


def at_coverage(predictor: Predictor, coverage: float) -> Predictor:
    """`predictor` with the threshold that accepts at least `coverage` of the validation data."""
    if predictor.selector is None:
        raise ValueError("coverage cannot be chosen: this predictor was saved without a selector")
    return Predictor(
        predictor.ensemble,
        outliers=predictor.outliers,
        selector=predictor.selector,
        threshold=predictor.selector.threshold(coverage),
        ood_score=predictor.rule.ood_score,
        classes=predictor.classes,
        feature_layer=predictor.feature_layer,
        backbone=predictor.backbone,
    )
