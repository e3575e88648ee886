"""What is deployed: the predictor that answers, scores and abstains, the estimator, and what commands do with them.

May import: checks, files, slots, adapters, predictions, posteriors, calibrators, detectors, selective, data, backbones,
config, evaluation, report, runs, training.
"""

from calibrant.deploy.backbone import Backbone
from calibrant.deploy.early import EarlyStopping
from calibrant.deploy.predictor import Predictor
from calibrant.deploy.saving import load, save
from calibrant.predictions import Decision

__all__ = ["Backbone", "Decision", "EarlyStopping", "Predictor", "load", "save"]
