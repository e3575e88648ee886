"""Histograms of the confidence, ID against OOD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.metrics import ood_detection_probability
from calibrant.metrics.bins import bin_edges
from calibrant.metrics.functional import Array
from calibrant.metrics.variation import confidence_bins
from calibrant.report.display import RC, Display, percent_axis, styled
from calibrant.report.style import ID_COLOR, OOD_COLORS, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def confidence_histogram(confidence: Any, bins: int, weights: Array | None = None) -> Array:
    """The share of inputs in each bin (a, b], (bins,)."""
    index = confidence_bins("confidence", confidence, bins)
    counts = np.bincount(index, weights, minlength=bins)
    return np.asarray(counts / counts.sum())


@dataclass
class ConfidenceHistogramDisplay(Display):
    """The shares of ID and of OOD inputs per bin of confidence: the less they overlap, the better OOD is detected.

    `detection` holds the OOD detection probability (1 + TV) / 2 of each OOD set.
    """

    id_share: Array
    ood_share: Mapping[str, Array]
    detection: Mapping[str, float] = field(default_factory=dict)
    name: str | None = None

    @classmethod
    def from_confidences(
        cls,
        id_confidence: Any,
        ood_confidence: Mapping[str, Any],
        *,
        bins: int = 15,
        ax: Axes | None = None,
        name: str | None = None,
    ) -> ConfidenceHistogramDisplay:
        """Compute and draw the histograms of confidences (n,) and, by the name of their set, (k,)."""
        detection = {key: ood_detection_probability(id_confidence, one, bins) for key, one in ood_confidence.items()}
        shares = {key: confidence_histogram(one, bins) for key, one in ood_confidence.items()}
        return cls(confidence_histogram(id_confidence, bins), shares, detection, name).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, name: str | None = None) -> ConfidenceHistogramDisplay:
        """Draw on `ax` or on a new figure."""
        import matplotlib as mpl

        axes = styled(ax)
        edges = bin_edges(len(self.id_share))
        with mpl.rc_context(RC):
            axes.stairs(self.id_share, edges, fill=True, color=ID_COLOR, alpha=0.35)
            axes.stairs(self.id_share, edges, color=ID_COLOR, lw=1.2, label="ID")
            for number, (key, share) in enumerate(self.ood_share.items()):
                color, dash = OOD_COLORS[number % len(OOD_COLORS)], ("-", "--", ":", "-.")[number % 4]
                if number == 0:
                    axes.stairs(share, edges, fill=True, color=color, alpha=0.25)
                told = f", detected {percent(self.detection[key])} %" if key in self.detection else ""
                axes.stairs(share, edges, color=color, lw=1.2, ls=dash, label=f"OOD {key}{told}")
            axes.set(xlim=(0, 1), xlabel="Confidence", ylabel="Share of inputs")
            axes.set_ylim(bottom=0)
            percent_axis(axes.xaxis, axes.yaxis)
            axes.legend(loc="best")
            axes.set_title(name or self.name or "", loc="left")
        self.ax_, self.figure_ = axes, axes.figure
        return self
