"""A network that is trained already: from its weights and labeled data to a calibrated predictor and a page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from calibrant import InputError
from calibrant.config.loading import Settings
from calibrant.data import ArrayData, ImageTransform, has_parts, with_defaults
from calibrant.deploy.deploying import decoding_of, predictor_of
from calibrant.deploy.evaluating import evaluation_of
from calibrant.deploy.predictor import Predictor
from calibrant.deploy.reporting import report_page, table_of, write_table
from calibrant.evaluation import Evaluation, Row
from calibrant.files import whole, writable
from calibrant.runs.run import Run
from calibrant.training import Workspace, open_data
from calibrant.training.training_data import TrainingData, class_count

SCHEME = "FNN"  # one network, as it is
_UNCERTIFIED = ("rule.name=confidence", "rule.max_error=null", "rule.max_outliers=null", "rule.min_coverage=null")


@dataclass(frozen=True)
class CalibratedNetwork:
    """What came of it: predictor, evaluations (network, calibrated, with the rule), their table, and the data."""

    predictor: Predictor
    evaluations: list[Evaluation]
    rows: list[Row]
    data: TrainingData

    @property
    def accuracy(self) -> float:
        """Of the network on all test data."""
        return float(self.evaluations[0].id.correct.mean())

    def deployed(self) -> dict[str, Any]:
        """What the predictor, at its own threshold, does on test data: shares answered and wrong, outliers accepted."""
        said, threshold = self.evaluations[-1], self.predictor.threshold
        answered = said.id.acceptance >= threshold
        wrong = 1 - float(said.id.correct[answered].mean()) if answered.any() else None
        outliers = {name: [int((part.acceptance >= threshold).sum()), len(part)] for name, part in said.ood.items()}
        return {"answered": float(answered.mean()), "wrong": wrong, "outliers_accepted": outliers}


def transform_of(network: nn.Module) -> ImageTransform | None:
    """The transform that a network of timm brings with it; None for other networks."""
    config = getattr(network, "pretrained_cfg", None) or getattr(network, "default_cfg", None)
    if not isinstance(config, Mapping) or not {"input_size", "mean", "std"} <= config.keys():
        return None
    return ImageTransform.from_timm(config)


def calibrate_network(
    network: nn.Module,
    settings: Settings,
    out: str | Path | None = None,
    *,
    transform: ImageTransform | None = None,
    factory: str | None = None,
    coverage: float = 0.8,
    command: str = "",
    on_step: Callable[[str, int, int], None] | None = None,
    progress: bool | None = None,
) -> CalibratedNetwork:
    """Calibrate a trained `network` on held-out data, fit the rule that accepts its answers, and evaluate it.

    The network stays as it is. All that is written appears in `out` at once, at the end.

    Args:
        network: returns logits (B, C).
        settings: those of the profile `own-network`, with `data.source` and what else is wanted: `data.uncertainty`
            for outliers that the rule is fitted to (without them it makes some), `data.ood` for others to test on,
            `rule.max_error` and `rule.max_outliers` for a certificate.
        out: a new run directory for the predictor, the evaluations, the table and the page; None writes nothing.
        transform: what the network expects of images; None gives them to it on the scale 0 to 1, in their own size.
        factory: what makes the network, `package.module:function`, for whoever loads the predictor.
        coverage: systems are compared where they answer this share of inputs like the validation data.
        command: what the page says how it was made.
        on_step: told before every step what comes next, how many are done, and of how many.
        progress: bars; None shows them on a terminal.
    """
    tell = _Steps(on_step, 5)
    target = None if out is None else _unused(Path(out))
    settings = _prepared(settings, transform)
    tell("read the data")
    data = _shaped(open_data(settings.data, settings.seed), transform)
    workspace = Workspace(data, _normalizing(settings, transform, data), network=network, progress=progress)
    workspace.check(SCHEME)
    settings = workspace.settings
    tell(f"fit {settings.calibrator.name} and {settings.rule.name}")
    selection = workspace.selection(SCHEME)
    kept = _kept_transform(transform, settings.data.source, data)
    predictor = predictor_of(workspace, SCHEME, selection, transform=kept, factory=factory)
    tell("evaluate the network alone")
    evaluations = [
        *(_baseline(workspace, name, *overrides) for name, overrides in _baselines(settings).items()),
        evaluation_of(settings, f"network + {settings.rule.name}", selection.predictions),
    ]
    tell("measure with intervals")
    found = CalibratedNetwork(predictor, evaluations, table_of(evaluations, settings.report, (1.0, coverage)), data)
    _warn_if_guessing(found, class_count(data.train))
    tell("write the predictor and the page")
    if target is not None:
        _write(target, found, settings, command)
    tell("done")
    return found


class _Steps:
    """Tells which step comes next."""

    def __init__(self, on_step: Callable[[str, int, int], None] | None, total: int) -> None:
        self.on_step, self.done, self.total = on_step, 0, total

    def __call__(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step(what, self.done, self.total)
        self.done += 1


def _unused(out: Path) -> Path:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(f"{out} is not empty; choose another output folder")
    writable(out.absolute().parent)
    return out


def _prepared(settings: Settings, transform: ImageTransform | None) -> Settings:
    """`settings` with the sizes of `transform` in every spec, and validation data that the network has not seen.

    A source with a training part of its own is taken to be what the network was trained on.
    """
    data, options = settings.data, {} if transform is None else transform.options()

    def sized(spec: str | None) -> str | None:
        return None if spec is None else with_defaults(spec, options)

    specs = {name: sized(getattr(data, name)) for name in ("source", "uncertainty", "test_source")}
    changes: dict[str, Any] = {**specs, "ood": [sized(spec) for spec in data.ood]}
    if data.test_source is None and has_parts(data.source):
        changes |= {"validation_from": "test", "validation": 0.5}
    return settings.changed({"data": changes})


def _normalizing(settings: Settings, transform: ImageTransform | None, data: TrainingData) -> Settings:
    """`settings` with the mean and standard deviation of `transform`; without any, inputs stay as they are."""
    if transform is None or transform.mean is None or transform.std is None:
        return settings.changed({"data": {"normalize": False}})
    channels = data.train[0][0].shape[0]
    each = channels if len(transform.mean) == 1 else 1
    return settings.changed({"data": {"mean": transform.mean * each, "std": transform.std * each}})


def _shaped(data: TrainingData, transform: ImageTransform | None) -> TrainingData:
    """`data` with images at the size of `transform`, also of sources that cannot resize."""

    def shaped(part: Any) -> Any:
        image = transform is not None and isinstance(part, ArrayData) and part.inputs.dim() == 4
        return replace(part, inputs=transform.shaped(part.inputs)) if image and transform is not None else part

    parts = {name: shaped(getattr(data, name)) for name in ("train", "validation", "test", "uncertainty")}
    return replace(data, **parts, ood={name: shaped(part) for name, part in data.ood.items()})


def _kept_transform(transform: ImageTransform | None, source: str, data: TrainingData) -> ImageTransform | None:
    """What the predictor does with images: as for `data`, without the normalization, which is inside the network."""
    if transform is None:
        return decoding_of(source, data)
    channels, height, width = data.train[0][0].shape
    return replace(transform, size=(height, width), channels=channels, mean=None, std=None)


def _baselines(settings: Settings) -> dict[str, tuple[str, ...]]:
    """What the rule is compared with, by name: the network itself, and a threshold on its calibrated confidence."""
    plain: dict[str, tuple[str, ...]] = {"network": ("calibrator.name=none", *_UNCERTIFIED)}
    name = settings.calibrator.name
    return plain if name == "none" else {**plain, f"network + {name}": _UNCERTIFIED}


def _baseline(workspace: Workspace, name: str, *overrides: str) -> Evaluation:
    changed = workspace.with_settings(*overrides)
    return evaluation_of(changed.settings, name, changed.selection(SCHEME).predictions)


def _warn_if_guessing(found: CalibratedNetwork, classes: int) -> None:
    """A wrong normalization or order of classes is seen by its accuracy alone."""
    if found.accuracy < 1 / classes + 0.1 * (1 - 1 / classes):
        warnings.warn(
            f"the network is right on only {100 * found.accuracy:.1f} % of the test data, which has {classes} classes:"
            " check its weights, the normalization (mean and std), the size, and the order of the classes",
            stacklevel=3,
        )


def _write(target: Path, found: CalibratedNetwork, settings: Settings, command: str) -> None:
    """The run directory, whole or not at all."""
    data, names = found.data, [evaluation.system for evaluation in found.evaluations]
    title = f"{settings.data.source.partition('?')[0]}: a trained network, calibrated"
    with whole(target) as temporary:
        run = Run(temporary)
        run.begin(settings, (), command, data.splits_json(), products=names)
        for evaluation in found.evaluations:
            evaluation.save(run.evaluation_path(evaluation.system))
        found.predictor.save(run.predictor_path(names[-1]))
        write_table(temporary / "table.csv", found.rows)
        report_page([run], temporary / "report.html", rows=found.rows, title=title, data=data)
