"""Training: the stages over a run directory, the rule that selects lambda, and the estimator."""

from calibrant.training.inputs import TrainingData, as_examples, open_data
from calibrant.training.normalization import Normalize
from calibrant.training.outputs import Outputs
from calibrant.training.selecting import Selection
from calibrant.training.workspace import Workspace

__all__ = ["Normalize", "Outputs", "Selection", "TrainingData", "Workspace", "as_examples", "open_data"]
