"""Measures: pure functions of tensors or arrays that return fractions; `bootstrap` puts an interval around any.

Streaming versions of the binned measures are in `calibrant.metrics.streaming`, which needs torchmetrics.

May import: checks, kernels.
"""

from calibrant.metrics.calibration import (
    ReliabilityDiagram,
    bin_accuracy,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    mean_gap,
    reliability_diagram,
)
from calibrant.metrics.coverage_at_error import coverage_at_error
from calibrant.metrics.debiased_calibration import debiased_calibration_error
from calibrant.metrics.declarations import DeclaredMeasure, catalogue, measure
from calibrant.metrics.detection import aupr, auroc, fpr_at_tpr
from calibrant.metrics.detection_at_coverage import (
    DetectionAtCoverage,
    detection_with_rejections,
    ood_detection_at_coverage,
    selective_detection_probability,
    system_detection_rate,
)
from calibrant.metrics.intervals import bootstrap, bootstrap_band, bootstrap_difference
from calibrant.metrics.kernel_calibration import mmce, selective_mmce
from calibrant.metrics.outlier_stream import (
    error_rate,
    outliers_accepted,
    stream_aurc,
    stream_calibration_error,
    stream_risk,
    wrong_answers,
)
from calibrant.metrics.resampling import Band, Interval
from calibrant.metrics.risk import RiskCoverage, augrc, aurc, risk_coverage, selective_risk
from calibrant.metrics.scoring import accuracy, brier_score, negative_log_likelihood
from calibrant.metrics.selection import (
    Selective,
    accepted_share,
    coverage,
    selective,
    selective_accuracy,
    selective_calibration_error,
    threshold_at_coverage,
)
from calibrant.metrics.smooth_calibration import smooth_calibration_error
from calibrant.metrics.variation import ood_detection_probability, total_variation

__all__ = [
    "Band",
    "DeclaredMeasure",
    "DetectionAtCoverage",
    "Interval",
    "ReliabilityDiagram",
    "RiskCoverage",
    "Selective",
    "accepted_share",
    "accuracy",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "bin_accuracy",
    "bootstrap",
    "bootstrap_band",
    "bootstrap_difference",
    "brier_score",
    "catalogue",
    "classwise_calibration_error",
    "coverage",
    "coverage_at_error",
    "debiased_calibration_error",
    "detection_with_rejections",
    "error_rate",
    "expected_calibration_error",
    "fpr_at_tpr",
    "maximum_calibration_error",
    "mean_gap",
    "measure",
    "mmce",
    "negative_log_likelihood",
    "ood_detection_at_coverage",
    "ood_detection_probability",
    "outliers_accepted",
    "reliability_diagram",
    "risk_coverage",
    "selective",
    "selective_accuracy",
    "selective_calibration_error",
    "selective_detection_probability",
    "selective_mmce",
    "selective_risk",
    "smooth_calibration_error",
    "stream_aurc",
    "stream_calibration_error",
    "stream_risk",
    "system_detection_rate",
    "threshold_at_coverage",
    "total_variation",
    "wrong_answers",
]
