"""Accuracy against ECE, with OOD detection as color."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError, checks
from calibrant.evaluation import Row
from calibrant.metrics.functional import Array, array
from calibrant.report.display import RC, Display, percent_axis, styled
from calibrant.report.style import HEAT, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def pareto(accuracy: Array, ece: Array) -> NDArray[np.bool_]:
    """Which points no other beats in both: more accurate and at most the ECE, or less ECE and at least as accurate.

    >>> pareto(np.array([0.9, 0.8, 0.7]), np.array([0.2, 0.1, 0.15])).tolist()
    [True, True, False]
    """
    better = (accuracy[:, None] >= accuracy) & (ece[:, None] <= ece)
    strictly = (accuracy[:, None] > accuracy) | (ece[:, None] < ece)
    return np.asarray(~(better & strictly).any(0))


@dataclass
class TradeOffDisplay(Display):
    """One point a system: accuracy (up is better) against ECE (left is better), joined along the Pareto front."""

    accuracy: Array
    ece: Array
    detection: Array | None = None
    names: Sequence[str] = ()

    @classmethod
    def from_values(
        cls, accuracy: Any, ece: Any, *, detection: Any = None, names: Sequence[str] = (), ax: Axes | None = None
    ) -> TradeOffDisplay:
        """Draw systems given by their accuracy (n,), ECE (n,) and, as color, OOD detection probability (n,)."""
        right = checks.measured.unit_interval("accuracy", accuracy)
        error = checks.measured.unit_interval("ece", ece)
        checks.same_length("ece", error, "accuracy", right)
        heat = None if detection is None else checks.measured.floating("detection", detection, dims=1)
        if heat is not None:
            checks.same_length("detection", heat, "accuracy", right)
        if names and len(names) != len(right):
            raise InputError(f"names has {len(names)} entries, but accuracy has {len(right)}")
        return cls(array(right), array(error), None if heat is None else array(heat), names).plot(ax=ax)

    @classmethod
    def from_rows(
        cls, rows: Sequence[Row], *, coverage: float = 1.0, ood: str | None = None, ax: Axes | None = None
    ) -> TradeOffDisplay:
        """Draw what `summarize` found at `coverage`, against the OOD set `ood`, by default the first."""
        chosen = ood if ood is not None else rows[0].ood if rows else None
        kept = [row for row in rows if row.wanted_coverage == coverage and row.ood == chosen]
        if not kept:
            raise InputError(f"rows hold nothing at coverage {coverage} against the OOD set {chosen!r}")
        heat = np.array([row.detection.estimate for row in kept])
        return cls.from_values(
            np.array([row.accuracy.estimate for row in kept]),
            np.array([row.ece.estimate for row in kept]),
            detection=None if np.isnan(heat).all() else heat,
            names=[row.system for row in kept],
            ax=ax,
        )

    def plot(self, *, ax: Axes | None = None) -> TradeOffDisplay:
        """Draw on `ax` or on a new figure."""
        import matplotlib as mpl

        axes = styled(ax, height=2.8)
        with mpl.rc_context(RC):
            front = np.flatnonzero(pareto(self.accuracy, self.ece))
            front = front[np.argsort(self.ece[front], kind="stable")]
            axes.step(
                self.ece[front], self.accuracy[front], where="post", color=MUTED, lw=0.8, ls=(0, (4, 3)), zorder=1
            )
            self._points(axes)
            for name, x, y in zip(self.names, self.ece, self.accuracy):
                axes.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=6, color=INK)
            axes.set(xlabel="ECE", ylabel="Accuracy")
            axes.margins(0.2, 0.12)
            percent_axis(axes.xaxis, axes.yaxis)
        self.ax_, self.figure_ = axes, axes.figure
        return self

    def _points(self, ax: Any) -> None:
        if self.detection is None:
            ax.scatter(self.ece, self.accuracy, s=28, color=MUTED, edgecolor="white", lw=0.5, zorder=2)
            return
        known = ~np.isnan(self.detection)
        ax.scatter(self.ece[~known], self.accuracy[~known], s=28, facecolor="none", edgecolor=MUTED, lw=0.8, zorder=2)
        shown = ax.scatter(
            self.ece[known], self.accuracy[known], s=28, c=self.detection[known], cmap=HEAT, vmin=0.5, vmax=1,
            edgecolor="white", lw=0.5, zorder=2,
        )  # fmt: skip
        bar = ax.figure.colorbar(shown, ax=ax, label="OOD detection probability", pad=0.02)
        bar.outline.set_visible(False)
        percent_axis(bar.ax.yaxis)
