"""What the studies vary: grids, seeds, coverages. One YAML file a profile in `plans/`, beside the profile itself.

Read after the settings of the profile; overrides are written `study.gammas=[0,0.5]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from calibrant import InputError
from calibrant.config.bounded_yaml import parse_yaml
from calibrant.config.loading import parse_overrides, sentence
from calibrant.config.values import NonNegative, Positive

Coverage = Annotated[float, Field(gt=0, le=1)]
Base = Literal["FNN", "CFNN", "BNN", "CBNN"]
BASES: tuple[Base, ...] = get_args(Base)
PREFIX = "study."


class BackbonePlan(BaseModel):
    """The settings of the backbone study: another profile, or this one with `overrides`; neither: this one itself."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    profile: str | None = None
    overrides: tuple[str, ...] = ()


class PosteriorsPlan(BaseModel):
    """The rows of the study `posteriors`: `systems` by name, each with the overrides that make it.

    `calibrated` are those that are also trained with the regularizer, and `divided` the one whose epochs are divided by
    its number of networks. Seeds that are null are those of all studies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    systems: dict[str, tuple[str, ...]] = Field(
        default={
            "deterministic": ("posterior.family=deterministic",),
            "mean_field": (),
            "mc_dropout": ("posterior.family=mc_dropout",),
            "ivon": ("posterior.family=ivon",),
            "swag": ("posterior.family=swag",),
            "laplace": ("posterior.family=laplace",),
            "deep_ensemble": ("posterior.family=deep_ensemble",),
        },
        description="overrides of each row, by its name",
    )
    calibrated: tuple[str, ...] = ("mean_field", "ivon", "deep_ensemble")
    seeds: tuple[int, ...] | None = None
    calibrated_seeds: tuple[int, ...] | None = None
    cost_rounds: Annotated[int, Field(ge=1)] = Field(default=3, description="repeats of the timings, taken in turns")


class StudyPlan(BaseModel):
    """The grids of the studies.

    >>> StudyPlan().coverages[:3]
    (0.1, 0.2, 0.3)
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    seeds: tuple[int, ...] = (0,)
    schemes: tuple[Base, ...] = Field(
        default=BASES,
        description="base schemes, FNN among them, in the order in which they are run, each with all that is built on"
        " it; studies leave out the others",
    )
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
    drawn: tuple[str, ...] | None = Field(
        default=None,
        description="measures that keep their draws in the records, and so have intervals; OOD scores then keep none;"
        " null: all",
    )
    backbone: BackbonePlan = BackbonePlan()
    posteriors: PosteriorsPlan = PosteriorsPlan()
    studies: tuple[str, ...] | None = Field(default=None, description="what `all` runs; null: every study")

    @field_validator("schemes")
    @classmethod
    def _compared_with_fnn(cls, schemes: tuple[Base, ...]) -> tuple[Base, ...]:
        if "FNN" not in schemes or len(set(schemes)) < len(schemes):
            raise InputError("FNN must be among them, because every study compares with it, and none twice")
        return schemes


def load_plan(profile: str, overrides: Iterable[str] = ()) -> StudyPlan:
    """The plan of `profile` with overrides such as `"study.seeds=[0,1]"`."""
    file = resources.files("calibrant.studies") / "plans" / f"{profile}.yaml"
    values = parse_yaml(file.read_text(encoding="utf-8")) or {} if file.is_file() else {}
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
