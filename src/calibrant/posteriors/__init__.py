"""q(theta): the families of posteriors, and the fixed ensembles that are drawn from them.

May import: checks, slots, adapters, predictions.
"""

from calibrant.posteriors.base import EpochEnd, Posterior, TrainingContext
from calibrant.posteriors.deep_ensemble import DeepEnsemble
from calibrant.posteriors.deterministic import Deterministic
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.ivon import IVON
from calibrant.posteriors.laplace import Laplace
from calibrant.posteriors.mc_dropout import MCDropout
from calibrant.posteriors.mean_field import MeanField
from calibrant.posteriors.swag import SWAG

__all__ = [
    "IVON",
    "SWAG",
    "DeepEnsemble",
    "Deterministic",
    "Ensemble",
    "EpochEnd",
    "Laplace",
    "MCDropout",
    "MeanField",
    "Posterior",
    "TrainingContext",
]
