"""Figures in the style of scikit-learn's displays, and the self-contained page.

May import: checks, files, metrics, predictions, config, evaluation.
"""

from calibrant.report.coverage_display import CoverageDisplay
from calibrant.report.display import Display, save_figure
from calibrant.report.histogram_display import ConfidenceHistogramDisplay
from calibrant.report.page import Certified, Example, Section, pick_examples, write_page
from calibrant.report.reliability_display import ReliabilityDisplay
from calibrant.report.risk_display import RiskCoverageDisplay
from calibrant.report.style import LineStyle, line_styles
from calibrant.report.tradeoff_display import TradeOffDisplay, pareto

__all__ = [
    "Certified",
    "ConfidenceHistogramDisplay",
    "CoverageDisplay",
    "Display",
    "Example",
    "LineStyle",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "Section",
    "TradeOffDisplay",
    "line_styles",
    "pareto",
    "pick_examples",
    "save_figure",
    "write_page",
]
