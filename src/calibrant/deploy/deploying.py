"""From a trained scheme to what is deployed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from calibrant.config.schemes import Scheme
from calibrant.data import ImageTransform, Spec, is_own
from calibrant.deploy.backbone import Backbone
from calibrant.deploy.predictor import Predictor
from calibrant.training.selecting import Selection
from calibrant.training.training_data import TrainingData, class_count, input_shape
from calibrant.training.workspace import Workspace


def predictor_of(
    workspace: Workspace,
    scheme: Scheme | str,
    selection: Selection,
    classes: Sequence[str] | None = None,
    *,
    transform: ImageTransform | None = None,
    factory: str | None = None,
) -> Predictor:
    """The predictor of `scheme`: a selective one answers at `selector.coverage`, one with a rule as that says.

    Any other one always answers.

    `classes` names the classes where the data does not; `transform` and `factory` are those of `Predictor`.
    """
    settings, train = workspace.settings, workspace.data.train
    own, ensemble = workspace.network is not None, workspace.ensemble(scheme).stored()
    ensemble.predict([train.take(torch.tensor([0]))])  # says whether it has one logit, which `info` tells
    return Predictor(
        ensemble,
        calibrator=selection.calibrator,
        outliers=selection.scorer,
        selector=selection.selector,
        threshold=selection.threshold,
        certificate=selection.certificate,
        classes=train.classes if classes is None else classes,
        feature_layer=settings.backbone.feature_layer,
        backbone=None if own else Backbone(settings.backbone.name, input_shape(train), class_count(train)),
        transform=transform,
        factory=factory,
    ).cpu()


def decoding_of(source: str, data: TrainingData) -> ImageTransform | None:
    """How the user's own image files that `source` names became `data`: what prediction does with others.

    None where they are no image files.
    """
    spec = Spec.parse(source)
    form = getattr(spec.source(), "form", None) if is_own(spec.kind) else None
    first = data.train.take(torch.tensor([0]))[0]
    if form is None or first.dim() != 4 or first.dtype != torch.uint8:
        return None
    channels, height, width = first.shape[1:]
    return ImageTransform((height, width), form.crop, interpolation=form.interpolation, channels=channels)
