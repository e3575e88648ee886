"""The page of one or more runs, and their table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant.config.groups import ReportSettings
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.deploy.saving import certificate_of
from calibrant.evaluation import Evaluation, Resampling, Row, summarize
from calibrant.files import RunError, write_csv
from calibrant.runs.run import Run
from calibrant.training.training_data import TrainingData

if TYPE_CHECKING:
    from calibrant.report.page import Certified, Section


def table_of(
    evaluations: Sequence[Evaluation], settings: ReportSettings, coverages: Sequence[float] = (1.0, 0.5)
) -> list[Row]:
    """The measures at full and at half coverage, or at other ones; intervals as `settings` want them."""
    most = ReportSettings.model_fields["resamples"].default  # this number, or fewer where the data are large
    how = Resampling(None if settings.resamples == most else settings.resamples, settings.confidence_level)
    return summarize(evaluations, coverages, bins=settings.bins, resampling=how)


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """`rows` as CSV."""
    write_csv(path, [row.flat() for row in rows])


NAMES: Mapping[str, Mapping[str, str]] = {"embedded": {"id": "digits", "far": "photographs", "near": "letters"}}
"""What the inputs of a data source show, where the names of its sets do not say it."""
LEAD = "Which answers can be trusted, and what becomes of inputs unlike the training data?"


def report_page(
    runs: Sequence[Run],
    out: str | Path,
    *,
    rows: Sequence[Row] | None = None,
    title: str | None = None,
    lead: str = "",
    commands: Sequence[str] = (),
    data: TrainingData | None = None,
    sections: Sequence[Section] = (),
) -> Path:
    """Write the page of all evaluations of `runs` to `out` and return its path.

    The test images are shown if their data can still be read; `rows` is the table and `data` the data of the runs, if
    they are at hand. Of a run with products the page is about the last of them, compared with the others.
    """
    from calibrant.report.page import write_page

    evaluations = [evaluation for run in runs for evaluation in run.evaluations()]
    settings, systems = runs[0].settings, list(dict.fromkeys(one.system for one in evaluations))
    rows = table_of(evaluations, settings.report) if rows is None else rows
    images, classes, notes = _inputs(settings, evaluations[0], data)
    made = [str(run.record["command"]) for run in runs]
    about = systems[0] if len(systems) == 1 else f"{len(systems)} systems"
    names = NAMES.get(settings.data.source, {})
    return write_page(
        out,
        evaluations,
        title=title or f"{about} on {names.get('id', settings.data.source)}",
        lead=lead or LEAD,
        notes=notes,
        certificates=_certificates(runs),
        first=[name for name in reversed(runs[0].products) if name in systems],
        names=names,
        settings=json.loads(settings.model_dump_json()),
        commands=[*dict.fromkeys(command for command in [*made, *commands] if command)],
        images=images,
        classes=classes,
        sections=[*system_names(systems), *sections],
        summary=rows,
        bins=settings.report.bins,
    )


SYSTEM_NAMES = (
    ("FNN", "a plain network, trained as usual"),
    ("BNN", "a Bayesian network: weights are drawn from a distribution, and the answers of several draws are averaged"),
    ("C...", "trained with a calibration regularizer"),
    ("...-OCM", "fine-tuned to be unsure of outliers of one kind (OOD confidence minimization)"),
    ("S...", "with a selector that chooses which inputs to answer, as in the paper"),
    ("... + temperature", "its confidence is temperature-scaled, and answers above a threshold are given"),
    ("... + trust", "answers that are probably right are given, where an answer to an outlier counts as wrong"),
)


def system_names(systems: Sequence[str]) -> list[Section]:
    """What the names of several systems mean, as far as these have such parts; nothing of one system."""
    from calibrant.report.page import Section

    schemes = [Scheme.parse(name.partition(" + ")[0]) for name in systems if _is_scheme(name.partition(" + ")[0])]
    if len(systems) < 2 or not schemes:
        return []
    parts = {
        "FNN": any(not scheme.bayesian for scheme in schemes),
        "BNN": any(scheme.bayesian for scheme in schemes),
        "C...": any(scheme.calibrated for scheme in schemes),
        "...-OCM": any(scheme.ocm for scheme in schemes),
        "S...": any(scheme.selective for scheme in schemes),
        "... + temperature": any(name.endswith(" + temperature") for name in systems),
        "... + trust": any(name.endswith(" + trust") for name in systems),
    }
    told = [f"{part}: {meaning}." for part, meaning in SYSTEM_NAMES if parts[part]]
    return [Section("What the names of the systems mean", told, place="groups", folded=True)]


def _is_scheme(name: str) -> bool:
    return name in map(str, Scheme.all())


def _certificates(runs: Sequence[Run]) -> dict[str, list[Certified]]:
    """What was certified of the predictors of `runs`, by system."""
    from calibrant.report.page import Certified

    found: dict[str, list[Certified]] = {}
    for run in runs:
        for system in (*map(str, run.schemes), *run.products):
            folder = run.predictor_path(system)
            made = certificate_of(folder) if folder.is_dir() else None
            if made is not None:
                entry = Certified(made.threshold, made.sentence(), run.settings.seed)
                found.setdefault(system, []).append(entry)
    return found


def _inputs(
    settings: Settings, evaluation: Evaluation, data: TrainingData | None
) -> tuple[dict[str, Any], tuple[str, ...] | None, list[str]]:
    """Images by data set, class names, and what to say if they cannot be had any more."""
    from calibrant.training import open_data

    try:
        data = open_data(settings.data, settings.seed) if data is None else data
    except (ValueError, OSError, RunError) as error:
        return {}, None, [f"The inputs themselves are not shown: {error}."]
    images: dict[str, Any] = {}
    for name, outcome in {"id": evaluation.id, **evaluation.ood}.items():
        part = data.test if name == "id" else data.ood.get(name)
        if isinstance(part, ArrayData) and part.inputs.dim() == 4 and len(part) == len(outcome):
            images[name] = part.inputs
    return images, data.train.classes, []
