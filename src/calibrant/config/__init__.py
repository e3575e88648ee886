"""Settings, validated. Nothing here imports torch, so that the command line starts at once."""

from calibrant.config.dependence import first_difference, identity, key
from calibrant.config.groups import (
    AugmentationSettings,
    BackboneSettings,
    ByFamily,
    CalibrationSettings,
    DataSettings,
    EngineSettings,
    FinetuneSettings,
    FitSettings,
    NonNegative,
    OptimizerSettings,
    OutlierSettings,
    Positive,
    PosteriorSettings,
    Regularizer,
    ReportSettings,
    SelectorSettings,
)
from calibrant.config.loading import Settings, load_settings, profiles, setting_names

__all__ = [
    "AugmentationSettings",
    "BackboneSettings",
    "ByFamily",
    "CalibrationSettings",
    "DataSettings",
    "EngineSettings",
    "FinetuneSettings",
    "FitSettings",
    "NonNegative",
    "OptimizerSettings",
    "OutlierSettings",
    "Positive",
    "PosteriorSettings",
    "Regularizer",
    "ReportSettings",
    "SelectorSettings",
    "Settings",
    "first_difference",
    "identity",
    "key",
    "load_settings",
    "profiles",
    "setting_names",
]
