"""The backbone study: another network and other data sets, all three parts (lambda, gamma, coverage)."""

from __future__ import annotations

from dataclasses import replace

from calibrant.config.loading import load_settings
from calibrant.studies import coverage_study, pareto_study, tradeoff_study
from calibrant.studies.lab import Lab
from calibrant.studies.plan import load_plan
from calibrant.studies.planning import Needs
from calibrant.studies.study import Figures, Study, merged
from calibrant.studies.study_table import StudyTable

PARTS = {"lambda": pareto_study.PARETO, "gamma": tradeoff_study.TRADE_OFF, "coverage": coverage_study.STUDY}


def _within(lab: Lab) -> Lab:
    """The lab of the study: of the plan's profile, of its overrides, or `lab` itself if it plans neither.

    Read from the folder if the study has been run there.
    """
    folder, plan = lab.results / "backbone", lab.plan.backbone
    if plan.profile is None and not plan.overrides:
        return lab
    if lab.runs is None:
        return Lab.load(folder)
    settings, inner = lab.settings, lab.plan
    if plan.profile is not None:
        own = settings.engine.model_dump(mode="json")
        kept = [f"engine.{key}={'null' if value is None else value}" for key, value in own.items()]
        root = [] if settings.data.root is None else [f"data.root={settings.data.root}"]
        settings, inner = load_settings(plan.profile, overrides=[*kept, *root]), load_plan(plan.profile)
    inner = inner.model_copy(update={"seeds": lab.seeds, "resamples": lab.plan.resamples})
    return Lab(settings.with_(*plan.overrides), inner, folder, lab.runs)


def _needs(lab: Lab) -> Needs:
    return merged(*(part.needs(lab) for part in PARTS.values()))


def _tables(lab: Lab) -> list[StudyTable]:
    return [replace(table, name=name) for name, part in PARTS.items() for table in part.tables(lab)]


def _figures(lab: Lab) -> Figures:
    return {name: part.figures(lab)["figure"] for name, part in PARTS.items()}


STUDY = Study(
    "backbone",
    "Another backbone and other data",
    "As lambda-pareto, gamma-tradeoff and coverage, with another network and other data sets (in the paper ResNet-18,"
    " CIFAR-10 against LSUN).",
    _needs,
    _tables,
    _figures,
    within=_within,
    all_bases=True,
)
