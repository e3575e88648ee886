"""What a selector is fitted to, one file each, in the slot "objective"; `contract.py` says what each of them offers."""

from calibrant.selective.objectives.contract import (
    SelectorExamples,
    SelectorObjective,
    describe_objective,
    make_objective,
)
from calibrant.selective.objectives.selective_calibration import SelectiveCalibration, selective_mmce
from calibrant.selective.objectives.selective_classification import SelectiveClassification

__all__ = [
    "SelectiveCalibration",
    "SelectiveClassification",
    "SelectorExamples",
    "SelectorObjective",
    "describe_objective",
    "make_objective",
    "selective_mmce",
]
