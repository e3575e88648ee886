"""Accuracy, ECE and OOD detection against coverage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrant import InputError
from calibrant.evaluation import DEFAULT_COVERAGES, Curves, Evaluation, coverage_curves
from calibrant.metrics.declarations import catalogue
from calibrant.metrics.functional import Array
from calibrant.report.display import RC, Display, outside_legend, percent_axis, styled
from calibrant.report.style import line_styles, title

DEFAULT_MEASURES = ("accuracy", "ece", "detection")


@dataclass
class CoverageDisplay(Display):
    """One panel a measure, one line a system: its mean over seeds, with a band from the lowest to the highest seed.

    A line ends where the measure is undefined: OOD detection, when fewer than 30 inputs of either kind are accepted.
    """

    curves: Sequence[Curves]
    ood: str | None = None
    measures: Sequence[str] = DEFAULT_MEASURES

    @classmethod
    def from_evaluations(
        cls,
        evaluations: Sequence[Evaluation],
        *,
        coverages: Sequence[float] = DEFAULT_COVERAGES,
        ood: str | None = None,
        measures: Sequence[str] = DEFAULT_MEASURES,
        bins: int = 15,
        ax: Any = None,
    ) -> CoverageDisplay:
        """Compute and draw the curves of every system against the OOD set `ood`, by default the first."""
        return cls(coverage_curves(evaluations, coverages, bins=bins), ood, measures).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> CoverageDisplay:
        """Draw on `ax`, one axes for each measure, or on a new figure."""
        import matplotlib as mpl

        panels = np.atleast_1d(styled(ax, panels=len(self.measures)))
        if len(panels) != len(self.measures):
            raise InputError(f"ax has {len(panels)} axes, but there are {len(self.measures)} measures to draw")
        with mpl.rc_context(RC):
            for panel, measure in zip(panels, self.measures):
                self._panel(panel, measure)
            outside_legend(panels[-1])
        self.ax_ = panels if len(panels) > 1 else panels[0]
        self.figure_ = panels[0].figure
        return self

    def _panel(self, ax: Any, measure: str) -> None:
        styles = line_styles([curve.system for curve in self.curves])
        for curve in self.curves:
            values, style = self._values(curve, measure), styles[curve.system]
            line = {"color": style.color, "lw": style.width, "ls": (0, style.dash) if style.dash else "-"}
            ax.plot(curve.coverages, values.mean(0), label=curve.system, **line)
            if len(values) > 1:
                ax.fill_between(curve.coverages, values.min(0), values.max(0), color=style.color, alpha=0.12, lw=0)
        ax.set(xlabel="Coverage", title=title(catalogue()[measure]), xlim=(float(self.curves[0].coverages.min()), 1))
        percent_axis(ax.xaxis, *([ax.yaxis] if catalogue()[measure].unit == "percent" else []))

    def _values(self, curve: Curves, measure: str) -> Array:
        """(S, G)."""
        known = [one for one in catalogue().values() if one.at_coverage]
        if measure not in [one.name for one in known]:
            raise InputError(f"measures must be among {', '.join(one.name for one in known)}, not {measure!r}")
        if measure in curve.measures:
            return curve.measures[measure]
        name = self.ood or next(iter(curve.ood), "")
        if name not in curve.ood:
            raise InputError(f"ood must be one of {', '.join(curve.ood) or '(no OOD set at hand)'}, not {name!r}")
        return curve.ood[name][measure]
