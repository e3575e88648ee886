"""Detectors: outlier scores of features and logits behind one contract, larger being more outlying, one file each.

`base.py` has the contract; `OutlierScores` fits any of them per member and averages over members; `logits` holds the
scores of logits as functions. A detector is registered by its name (`slots`).

May import: checks, slots, adapters, predictions.
"""

from calibrant.detectors.base import Detector, OutlierScore
from calibrant.detectors.density import KernelDensityScore
from calibrant.detectors.distances import DistanceScore
from calibrant.detectors.energy import EnergyScore
from calibrant.detectors.entropy import EntropyScore
from calibrant.detectors.fdbd import FDBDScore
from calibrant.detectors.forest import IsolationForestScore
from calibrant.detectors.gen import GENScore
from calibrant.detectors.guard import RangeGuard
from calibrant.detectors.knn import KNNScore
from calibrant.detectors.lof import LocalOutlierFactorScore
from calibrant.detectors.logit_detector import LogitDetector, ProbabilityDetector
from calibrant.detectors.mahalanobis import MahalanobisScore
from calibrant.detectors.max_logit import MaxLogitScore
from calibrant.detectors.max_logit_pnorm import MaxLogitPNormScore
from calibrant.detectors.msp import MSPScore
from calibrant.detectors.mutual_information import MutualInformationScore
from calibrant.detectors.nearest import NearestScore
from calibrant.detectors.neighbors import NeighborDistanceScore
from calibrant.detectors.per_member import OutlierScores
from calibrant.detectors.relative_mahalanobis import RelativeMahalanobisScore
from calibrant.detectors.svm import OneClassSVMScore
from calibrant.detectors.vim import ViMScore

__all__ = [
    "Detector",
    "DistanceScore",
    "EnergyScore",
    "EntropyScore",
    "FDBDScore",
    "GENScore",
    "IsolationForestScore",
    "KNNScore",
    "KernelDensityScore",
    "LocalOutlierFactorScore",
    "LogitDetector",
    "MSPScore",
    "MahalanobisScore",
    "MaxLogitPNormScore",
    "MaxLogitScore",
    "MutualInformationScore",
    "NearestScore",
    "NeighborDistanceScore",
    "OneClassSVMScore",
    "OutlierScore",
    "OutlierScores",
    "ProbabilityDetector",
    "RangeGuard",
    "RelativeMahalanobisScore",
    "ViMScore",
]
