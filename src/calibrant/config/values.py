"""What settings are made of: numbers with limits, names in a slot, numbers by family, and the base of every group."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from calibrant.slots import check

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
PosteriorName = Annotated[str, AfterValidator(partial(check, "posterior"))]
RegularizerName = Annotated[str, AfterValidator(partial(check, "regularizer"))]
DetectorName = Annotated[str, AfterValidator(partial(check, "detector"))]
SynthesizerName = Annotated[str, AfterValidator(partial(check, "synthesizer"))]
ObjectiveName = Annotated[str, AfterValidator(partial(check, "objective"))]
CalibratorName = Annotated[str, AfterValidator(partial(check, "calibrator"))]
Options = dict[str, bool | int | float | str | None]
Precision = Literal["32-true", "64-true", "bf16-mixed", "16-mixed", "bf16-true"]


class Group(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ByFamily(Group):
    """A number for frequentist and one for Bayesian networks; a bare number sets both.

    >>> ByFamily.model_validate(2.0).bayesian
    2.0
    """

    frequentist: NonNegative | None
    bayesian: NonNegative | None

    @model_validator(mode="before")
    @classmethod
    def _both(cls, value: Any) -> Any:
        return value if isinstance(value, (Mapping, ByFamily)) else {"frequentist": value, "bayesian": value}

    def of(self, family: str) -> float | None:
        """The number of `family`, `"frequentist"` or `"bayesian"`."""
        return self.bayesian if family == "bayesian" else self.frequentist
