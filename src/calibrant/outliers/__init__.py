"""Outlier scores of features: kernel density, isolation forest, one-class SVM, neighbour distance, local factor."""

from calibrant.outliers.base import SCORES, OutlierScore, register
from calibrant.outliers.density import KernelDensityScore
from calibrant.outliers.distances import DistanceScore
from calibrant.outliers.ensemble import OutlierScores
from calibrant.outliers.forest import IsolationForestScore
from calibrant.outliers.lof import LocalOutlierFactorScore
from calibrant.outliers.nearest import NearestScore
from calibrant.outliers.neighbors import NeighborDistanceScore
from calibrant.outliers.svm import OneClassSVMScore

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
