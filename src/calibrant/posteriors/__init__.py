"""q(theta): the families of posteriors, and the fixed ensembles that are drawn from them.

May import: checks, adapters, predictions.
"""

from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.mean_field import MeanField

__all__ = ["Ensemble", "MeanField"]
