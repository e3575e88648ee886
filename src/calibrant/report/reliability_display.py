"""The reliability diagram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import InputError
from calibrant.metrics import ReliabilityDiagram, reliability_diagram
from calibrant.report.display import RC, Display, percent_axis, styled
from calibrant.report.style import ID_COLOR, INK, MUTED, OVER, UNDER, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class ReliabilityDisplay(Display):
    """Accuracy against confidence in bins, the gap between the two, and how many inputs are in each bin.

    `min_count`: bins with fewer inputs are not drawn (the paper's figures use 100); the ECE is of all bins.
    """

    diagram: ReliabilityDiagram
    name: str | None = None
    min_count: int = 1

    @classmethod
    def from_predictions(
        cls,
        confidence: Any,
        correct: Any,
        *,
        bins: int = 15,
        min_count: int = 1,
        ax: Axes | None = None,
        name: str | None = None,
    ) -> ReliabilityDisplay:
        """Compute and draw the diagram of `confidence` (n,) and `correct` (n,) of 0 and 1."""
        return cls(reliability_diagram(confidence, correct, bins=bins), name, min_count).plot(ax=ax)

    def plot(self, *, ax: Axes | None = None, name: str | None = None, counts: bool = True) -> ReliabilityDisplay:
        """Draw on `ax` or on a new figure; `counts=False` leaves out the strip of counts above the diagram."""
        import matplotlib as mpl

        if self.min_count < 1:
            raise InputError(f"min_count must be at least 1, not {self.min_count}")
        axes, title = styled(ax, height=3.4), name or self.name or ""
        with mpl.rc_context(RC):
            self._bars(axes)
            if counts:
                self._counts(axes.inset_axes((0, 1.03, 1, 0.16)), title)
            else:
                axes.set_title(title, loc="left")
        self.ax_, self.figure_ = axes, axes.figure
        return self

    def _bars(self, ax: Any) -> None:
        diagram, shown = self.diagram, self.diagram.count >= self.min_count
        left, width = diagram.edges[:-1][shown], np.diff(diagram.edges)[shown]
        accuracy, confidence = diagram.accuracy[shown], diagram.confidence[shown]
        ax.bar(left, accuracy, width, align="edge", color=ID_COLOR, alpha=0.75, lw=0.4, ec="white", label="accuracy")
        for above, color, label in ((False, OVER, "overconfident by"), (True, UNDER, "underconfident by")):
            part = (accuracy > confidence) == above
            low, high = np.minimum(accuracy, confidence)[part], np.maximum(accuracy, confidence)[part]
            if part.any():
                ax.bar(
                    left[part], high - low, width[part], low, align="edge", fc="none", ec=color, lw=0.8, hatch="////",
                    label=label,
                )  # fmt: skip
        ax.plot([0, 1], [0, 1], color=INK, lw=0.8, ls=(0, (4, 3)))
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Confidence", ylabel="Accuracy")
        ax.set_aspect("equal")
        percent_axis(ax.xaxis, ax.yaxis)
        ax.legend(loc="upper left", title=f"ECE {percent(diagram.calibration_error)} %", alignment="left")

    def _counts(self, strip: Any, title: str) -> None:
        diagram, width = self.diagram, np.diff(self.diagram.edges)
        strip.bar(diagram.edges[:-1], diagram.count, width, align="edge", color=MUTED, lw=0.4, ec="white")
        strip.set(xlim=(0, 1), xticks=[], yticks=[])
        strip.grid(False)
        strip.spines["left"].set_visible(False)
        total, most = int(diagram.count.sum()), int(diagram.count.max())
        strip.text(0.01, 0.92, f"{total:,} inputs, at most {most:,} in a bin", transform=strip.transAxes, va="top",
                   color=MUTED, fontsize=6)  # fmt: skip
        strip.set_title(title, loc="left")
