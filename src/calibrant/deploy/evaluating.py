"""What a scheme says of data, as the record that tables and pages are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from calibrant.adapters.devices import choose_device
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData, DataError, Spec, has_parts, open_source, with_defaults
from calibrant.deploy.prediction_tables import check_shape, image_options
from calibrant.deploy.predictor import Predictor
from calibrant.deploy.saving import load
from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions
from calibrant.runs.run import Run


def evaluation_of(settings: Settings, system: Scheme | str, predictions: Mapping[str, Predictions]) -> Evaluation:
    """A scheme or product on test and OOD data; the selector decides where there is one, else the confidence.

    Thresholds come from the validation data, or, with `selector.threshold: test`, from the test data. Of the scores,
    those that the selector or the rule may read are kept.
    """
    names = settings.outliers.scores if settings.rule.name == "confidence" else settings.rule.detectors
    kept = {
        part: replace(one, scores={name: one.scores[name] for name in names if name in one.scores})
        for part, one in predictions.items()
    }
    about = {"Profile": settings.profile, "Data": settings.data.source, "Network": settings.backbone.name}
    if settings.calibrator.name != "none":
        about["Calibrator"] = settings.calibrator.name
    return Evaluation.of(str(system), settings.seed, kept, settings.selector.threshold, **about)


def evaluate_predictor(
    predictor: Predictor,
    before: Evaluation,
    data: ArrayData | None = None,
    ood: Mapping[str, ArrayData] | None = None,
    *,
    batch_size: int = 512,
) -> Evaluation:
    """`before` with its test set replaced by `data` and its OOD sets by `ood`, where these are given.

    The thresholds stay those of the validation data.
    """
    inside = before.id
    if data is not None:
        if data.labels is None:
            raise DataError(f"{data.name} has no labels, without which accuracy and calibration cannot be measured")
        inside = _decided(predictor, data, batch_size, _matched(predictor, data))
    outside = before.ood
    if ood:
        outside = {name: _decided(predictor, part, batch_size, None) for name, part in ood.items()}
    return replace(before, id=inside, ood=outside)


def evaluate_run(
    run: Run,
    schemes: Sequence[Scheme] = (),
    *,
    data: str | None = None,
    ood: Sequence[str] = (),
    device: str = "auto",
    module: nn.Module | None = None,
) -> list[Evaluation]:
    """The evaluations of `schemes` (none: all) in `run`; on the data that the specs name, where they are given.

    `module` is the network of a run that has one of the user's own. Systems without a predictor are left out on other
    data.
    """
    found = run.evaluations(schemes)
    if data is None and not ood:
        return found
    chosen, result = choose_device(device), list[Evaluation]()
    inside: ArrayData | None = None
    outside: dict[str, ArrayData] = {}
    for one in (one for one in found if run.predictor_path(one.system).is_dir()):
        predictor = load(run.predictor_path(one.system), module, device=chosen)
        if not result:
            inside = None if data is None else _open(data, predictor)
            outside = {_name(spec): _open(spec, predictor) for spec in ood}
        result.append(evaluate_predictor(predictor, one, inside, outside))
    return result


def _open(spec: str, predictor: Predictor) -> ArrayData:
    spec = with_defaults(spec, image_options(predictor))
    return open_source(spec, split="test" if has_parts(spec) else "all")


def _name(spec: str) -> str:
    parsed = Spec.parse(spec)
    return Path(parsed.path).stem or parsed.kind


def _decided(predictor: Predictor, data: ArrayData, batch_size: int, labels: Any) -> Predictions:
    check_shape(predictor, data.name, tuple(data.inputs.shape[1:]))
    return replace(predictor.predict(torch.split(data.inputs, batch_size)).predictions, labels=labels)


def _matched(predictor: Predictor, data: ArrayData) -> Any:
    """The labels of `data` as the class indices of `predictor`: by name where both have names."""
    assert data.labels is not None
    if data.classes is None or predictor.classes is None:
        return data.labels
    unknown = [name for name in data.classes if name not in predictor.classes]
    if unknown:
        raise DataError(f"{data.name} has a class {unknown[0]!r}, which the predictor was not trained on")
    return torch.tensor([predictor.classes.index(name) for name in data.classes])[data.labels]
