"""Outlier scores, larger being more outlying: of features (one file each) and of logits (`logits`).

May import: checks, adapters.
"""

from calibrant.detectors.base import SCORES, OutlierScore, register
from calibrant.detectors.density import KernelDensityScore
from calibrant.detectors.distances import DistanceScore
from calibrant.detectors.forest import IsolationForestScore
from calibrant.detectors.lof import LocalOutlierFactorScore
from calibrant.detectors.nearest import NearestScore
from calibrant.detectors.neighbors import NeighborDistanceScore
from calibrant.detectors.per_member import OutlierScores
from calibrant.detectors.svm import OneClassSVMScore

__all__ = [
    "SCORES",
    "DistanceScore",
    "IsolationForestScore",
    "KernelDensityScore",
    "LocalOutlierFactorScore",
    "NearestScore",
    "NeighborDistanceScore",
    "OneClassSVMScore",
    "OutlierScore",
    "OutlierScores",
    "register",
]
