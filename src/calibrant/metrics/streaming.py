"""The binned measures over a stream of batches, as torchmetrics classes.

The state is one count or sum per bin, whatever the number of points, and merges across processes by addition. Sums of
confidences are kept as integers in units of 2^-32, so that they do not depend on the order of batches or processes and
need no float64 on the device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.metrics.bins import bin_edges, bin_index, checked_bins
from calibrant.metrics.calibration import ReliabilityDiagram
from calibrant.metrics.functional import array
from calibrant.metrics.variation import histogram_variation

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError(
        "calibrant.metrics.streaming needs torchmetrics: pip install 'calibrant[torchmetrics]'"
    ) from error

_UNIT = 2**32


class _BinnedConfidence(Metric):
    """Count, sum of confidence and sum of correctness per bin: `update(confidence, correct)`, both (n,)."""

    full_state_update = False
    is_differentiable = False
    count: Tensor
    confidence: Tensor
    correct: Tensor

    def __init__(self, bins: int = 15, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins = checked_bins(bins)
        for name in ("count", "confidence", "correct"):
            self.add_state(name, torch.zeros(bins, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, confidence: Tensor, correct: Tensor) -> None:
        """Count one batch."""
        level = checks.unit_interval("confidence", confidence)
        right = checks.correctness("correct", correct)
        checks.same_length("correct", right, "confidence", level)
        index = bin_index(level, self.bins)
        self.count += torch.bincount(index, minlength=self.bins)
        self.correct.index_add_(0, index, right.to(torch.int64))
        self.confidence.index_add_(0, index, (level * _UNIT).round().to(torch.int64))

    def _diagram(self) -> ReliabilityDiagram:
        edges, confidence = bin_edges(self.bins), array(self.confidence) / _UNIT
        return ReliabilityDiagram.from_sums(edges, confidence, array(self.correct), array(self.count))


class StreamingReliability(_BinnedConfidence):
    """`reliability_diagram` with bins of equal width, over a stream: `update(confidence, correct)`, both (n,).

    >>> metric = StreamingReliability(bins=2)
    >>> metric.update(torch.tensor([0.3, 0.9]), torch.tensor([0, 1]))
    >>> metric.compute()["accuracy"]
    tensor([0., 1.])
    """

    def compute(self) -> dict[str, Tensor]:
        """The fields of the diagram by name, as tensors: edges (bins + 1,), confidence, accuracy, count (bins,)."""
        diagram, device = self._diagram(), self.count.device
        fields = {name: getattr(diagram, name) for name in ("edges", "confidence", "accuracy")}
        result = {name: torch.from_numpy(value).float().to(device) for name, value in fields.items()}
        return result | {"count": self.count.clone()}


class StreamingCalibrationError(_BinnedConfidence):
    """`expected_calibration_error` with bins of equal width, over a stream: `update(confidence, correct)`, both (n,).

    >>> metric = StreamingCalibrationError(bins=2)
    >>> metric.update(torch.tensor([0.3, 0.9]), torch.tensor([0, 1]))
    >>> metric.update(torch.tensor([0.8]), torch.tensor([1]))
    >>> float(metric.compute())
    0.2
    """

    higher_is_better = False

    def compute(self) -> Tensor:
        """The ECE, a float32 scalar; NaN until a point was seen."""
        return torch.tensor(self._diagram().calibration_error, device=self.count.device)


class StreamingTotalVariation(Metric):
    """`total_variation` over a stream: `update(confidence, is_ood)`, both (n,); batches may mix ID and OOD points.

    >>> metric = StreamingTotalVariation()
    >>> metric.update(torch.tensor([0.95, 0.1, 0.99]), torch.tensor([False, True, False]))
    >>> float(metric.compute())
    1.0
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    histograms: Tensor

    def __init__(self, bins: int = 15, *, corrected: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bins, self.corrected = checked_bins(bins), corrected
        self.add_state("histograms", torch.zeros(2, bins, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, confidence: Tensor, is_ood: Tensor) -> None:
        """Count one batch."""
        level = checks.unit_interval("confidence", confidence)
        outside = checks.shaped("is_ood", checks.tensor("is_ood", is_ood), dims=1)
        if outside.dtype != torch.bool:
            raise InputError(f"is_ood must be bool, not {outside.dtype}")
        checks.same_length("is_ood", outside, "confidence", level)
        cell = bin_index(level, self.bins) + self.bins * outside
        self.histograms += torch.bincount(cell, minlength=2 * self.bins).view(2, self.bins)

    def compute(self) -> Tensor:
        """The TV, a float32 scalar; NaN until a point of either kind was seen."""
        counts = array(self.histograms)
        value = histogram_variation(counts[:1], counts[1:], corrected=self.corrected)
        return torch.tensor(float(value[0]), device=self.histograms.device)
