"""What is deployed: a predictor that answers, scores and abstains; saved, loaded and exported whole."""

from calibrant.predictor.decision import Decision
from calibrant.predictor.early import EarlyStopping
from calibrant.predictor.model import Predictor
from calibrant.predictor.storage import Backbone, load, save

__all__ = ["Backbone", "Decision", "EarlyStopping", "Predictor", "load", "save"]
