"""Evaluation of systems: what they said of data sets, tables with intervals, curves over coverage.

May import: files, metrics, predictions.
"""

from calibrant.evaluation.curves import DEFAULT_COVERAGES, Curves, coverage_curves
from calibrant.evaluation.operating_points import share_above, threshold_source, thresholds
from calibrant.evaluation.summary import Resampling, Row, summarize
from calibrant.evaluation.systems import Evaluation, by_system

__all__ = [
    "DEFAULT_COVERAGES",
    "Curves",
    "Evaluation",
    "Resampling",
    "Row",
    "by_system",
    "coverage_curves",
    "share_above",
    "summarize",
    "threshold_source",
    "thresholds",
]
