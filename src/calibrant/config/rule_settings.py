"""The settings of the rule that decides for a scheme without a selector."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from calibrant import InputError
from calibrant.config.values import DetectorName, Fraction, Group, Options, SynthesizerName


class RuleSettings(Group):
    """What decides for a scheme without a selector: which answers to accept, and from which trust on."""

    name: Literal["confidence", "trust", "sirc"] = Field(
        default="confidence",
        description="confidence; trust, fitted to D_u or synthetic outliers; sirc, without any",
    )
    share: Fraction = Field(default=0.1, description="trust: assumed share of outliers in the stream")
    detectors: tuple[DetectorName, ...] = Field(
        default=("knn", "energy", "gen"),
        min_length=1,
        description="trust: those that may enter; sirc: the first",
    )
    options: dict[DetectorName, Options] = Field(
        default_factory=dict, description="keywords of the detectors, by name: {knn: {k: 10}}"
    )
    synthesizers: tuple[SynthesizerName, ...] | None = Field(
        default=None, description="how outliers are made where there is no D_u; null: by kind of data"
    )
    error: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.1, description="trust: accept where the answer is wrong with at most this probability"
    )
    coverage: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, description="of the threshold that is saved; null: by error, or 0.9 for sirc"
    )
    max_error: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="certificate: error among accepted ID inputs; null: no certificate"
    )
    max_outliers: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="certificate: share of outliers that are accepted; null: no certificate"
    )
    min_coverage: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="certificate: ID coverage; null: not promised"
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.1, description="certificate: probability that it does not hold"
    )

    @model_validator(mode="after")
    def _both(self) -> RuleSettings:
        if (self.max_error is None) != (self.max_outliers is None):
            raise InputError("a certificate needs both rule.max_error and rule.max_outliers")
        if self.max_error is None and self.min_coverage is not None:
            raise InputError("rule.min_coverage is part of a certificate, which needs rule.max_error as well")
        return self
