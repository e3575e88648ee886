"""The risk-coverage curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.metrics import RiskCoverage, aurc, risk_coverage
from calibrant.report.display import RC, Display, outside_legend, percent_axis, styled
from calibrant.report.style import LineStyle, line_styles, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class RiskCoverageDisplay(Display):
    """The error rate of the accepted inputs against the share that is accepted; draw several on one `ax` to compare."""

    curve: RiskCoverage
    area: float | None = None
    name: str | None = None

    @classmethod
    def from_predictions(
        cls,
        acceptance: Any,
        correct: Any,
        *,
        ax: Axes | None = None,
        name: str | None = None,
        style: LineStyle | None = None,
    ) -> RiskCoverageDisplay:
        """Compute and draw the curve of `acceptance` (n,), larger is accepted first, and `correct` (n,)."""
        display = cls(risk_coverage(acceptance, correct), aurc(acceptance, correct), name)
        return display.plot(ax=ax, style=style)

    def plot(
        self, *, ax: Axes | None = None, name: str | None = None, style: LineStyle | None = None
    ) -> RiskCoverageDisplay:
        """Draw on `ax` or on a new figure."""
        import matplotlib as mpl

        axes = styled(ax, width=4.8)
        label = name or self.name or "system"
        look = style or line_styles([label])[label]
        if self.area is not None:
            label = f"{label} (AURC {percent(self.area)} %)"
        with mpl.rc_context(RC):
            dash = (0, look.dash) if look.dash else "-"
            axes.plot(self.curve.coverage, self.curve.risk, color=look.color, lw=look.width, ls=dash, label=label)
            axes.set(xlim=(0, 1), xlabel="Coverage", ylabel="Error rate of the accepted")
            axes.set_ylim(0, _ceiling(axes))
            percent_axis(axes.xaxis, axes.yaxis)
            outside_legend(axes)
        self.ax_, self.figure_ = axes, axes.figure
        return self


def _ceiling(axes: Any) -> float:
    """A little above all lines from coverage 10 % on: before that, a single error decides the rate."""
    lines = [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.get_lines()]
    return max(1.1 * max(float(risk[coverage >= 0.1].max()) for coverage, risk in lines), 1e-3)
