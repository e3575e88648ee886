"""What the studies vary: grids, seeds, coverages. One YAML file a profile in `plans/`, beside the profile itself.

Read after the settings of the profile; overrides are written `study.gammas=[0,0.5]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from calibrant import InputError
from calibrant.config.loading import parse_overrides, sentence
from calibrant.config.values import NonNegative, Positive

Coverage = Annotated[float, Field(gt=0, le=1)]
PREFIX = "study."


class BackbonePlan(BaseModel):
    """The settings of the backbone study: another profile, or this one with `overrides`; neither: this one itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str | None = None
    overrides: tuple[str, ...] = ()


class StudyPlan(BaseModel):
    """The grids of the studies.

    >>> StudyPlan().coverages[:3]
    (0.1, 0.2, 0.3)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[int, ...] = (0,)
    lambdas: tuple[Positive, ...] | None = Field(
        default=None, description="of lambda-pareto and ablation-lambda; null: calibration.grid"
    )
    selection_epochs: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="lambda is chosen on fits of this fraction of fit.epochs"
    )
    gammas: tuple[NonNegative, ...] = (0, 0.01, 0.05, 0.1, 0.2, 0.5, 1)
    etas: tuple[NonNegative, ...] = (0.0001, 0.001, 0.01, 0.1, 1)
    eta_coverage: Coverage = 0.4
    coverages: tuple[Coverage, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)
    regularizers: dict[str, tuple[Positive, ...]] = Field(
        default={
            "weighted_mmce": (0.4, 0.8, 2, 4),
            "mmce": (0.4, 0.8, 2, 4),
            "esd": (2, 10, 50),
            "dece": (0.05, 0.15, 0.5, 2),
            "focal": (0.5, 1, 4),
            "avuc": (0.2, 0.5, 2),
            "soft_avuc": (0.2, 0.5, 2),
        },
        description="the grid of lambda for each regularizer of the study `regularizers`, but the settings' own",
    )
    resamples: Annotated[int, Field(ge=2)] = Field(default=200, description="bootstrap draws that a record keeps")
    backbone: BackbonePlan = BackbonePlan()
    studies: tuple[str, ...] | None = Field(default=None, description="what `all` runs; null: every study")


def load_plan(profile: str, overrides: Iterable[str] = ()) -> StudyPlan:
    """The plan of `profile` with overrides such as `"study.seeds=[0,1]"`."""
    file = resources.files("calibrant.studies") / "plans" / f"{profile}.yaml"
    values = yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.is_file() else {}
    named = [PREFIX + override.removeprefix(PREFIX) for override in overrides]
    return parse_plan(parse_overrides(named, {"study": values}, "study.seeds=[0,1,2]")["study"])


def parse_plan(values: Mapping[str, Any]) -> StudyPlan:
    """`values` as a plan; a wrong one is refused in one sentence."""
    try:
        return StudyPlan.model_validate(values)
    except ValidationError as error:
        raise InputError(sentence(error, StudyPlan, PREFIX)) from None


def split_overrides(overrides: Iterable[str]) -> tuple[list[str], list[str]]:
    """Overrides of the settings, and those of the plan.

    >>> split_overrides(["fit.rate=1", "study.seeds=[0]"])
    (['fit.rate=1'], ['study.seeds=[0]'])
    """
    found = list(overrides)
    return [o for o in found if not o.startswith(PREFIX)], [o for o in found if o.startswith(PREFIX)]
