"""Training: the stages over a run directory, the rule that selects lambda, and the estimator."""

from calibrant.backbones.normalization import Normalize
from calibrant.training.inputs import TrainingData, as_examples, open_data
from calibrant.training.lambda_rule import LambdaChoice, Trial, choose, select_lambda
from calibrant.training.selecting import Selection
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
