"""What is deployed: a predictor that answers, scores and abstains; saved, loaded and exported whole."""

from calibrant.deploy.early import EarlyStopping
from calibrant.deploy.predictor import Predictor
from calibrant.deploy.saving import Backbone, load, save
from calibrant.predictions import Decision

__all__ = ["Backbone", "Decision", "EarlyStopping", "Predictor", "load", "save"]
