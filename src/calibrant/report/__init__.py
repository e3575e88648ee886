"""Figures in the style of scikit-learn's displays, and the self-contained page."""

from calibrant.report.coverage import CoverageDisplay
from calibrant.report.figures import Display, save_figure
from calibrant.report.histogram import ConfidenceHistogramDisplay
from calibrant.report.page import Example, pick_examples, write_page
from calibrant.report.reliability import ReliabilityDisplay
from calibrant.report.risk import RiskCoverageDisplay
from calibrant.report.style import LineStyle, line_styles
from calibrant.report.tradeoff import TradeOffDisplay, pareto

__all__ = [
    "ConfidenceHistogramDisplay",
    "CoverageDisplay",
    "Display",
    "Example",
    "LineStyle",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "TradeOffDisplay",
    "line_styles",
    "pareto",
    "pick_examples",
    "save_figure",
    "write_page",
]
