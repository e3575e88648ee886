"""Evaluation of systems: what they said of data sets, tables with intervals, curves over coverage."""

from calibrant.evaluation.curves import DEFAULT_COVERAGES, Curves, coverage_curves
from calibrant.evaluation.measures import CURVE_MEASURES
from calibrant.evaluation.operating_points import share_above, threshold_source, thresholds
from calibrant.evaluation.outcome import Evaluation, Outcome, by_system
from calibrant.evaluation.summary import MEASURES, Resampling, Row, summarize

__all__ = [
    "CURVE_MEASURES",
    "DEFAULT_COVERAGES",
    "MEASURES",
    "Curves",
    "Evaluation",
    "Outcome",
    "Resampling",
    "Row",
    "by_system",
    "coverage_curves",
    "share_above",
    "summarize",
    "threshold_source",
    "thresholds",
]
