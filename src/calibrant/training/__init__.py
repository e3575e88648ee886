"""Training: the stages of a run, the loop behind them, the rule that selects lambda, sweeps.

May import: files, slots, adapters, metrics, predictions, posteriors, losses, calibrators, detectors, selective, data,
backbones, config, report, runs.
"""

from calibrant.backbones.normalization import Normalize
from calibrant.training.lambda_rule import LambdaChoice, Trial, choose, select_lambda
from calibrant.training.selecting import Selection
from calibrant.training.training_data import TrainingData, as_examples, open_data
from calibrant.training.workspace import Workspace

__all__ = [
    "LambdaChoice",
    "Normalize",
    "Selection",
    "TrainingData",
    "Trial",
    "Workspace",
    "as_examples",
    "choose",
    "open_data",
    "select_lambda",
]
