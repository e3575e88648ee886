"""What all displays share: axes in one style, and files that are the same for the same data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrant import InputError
from calibrant.report.style import GRID, INK, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RC: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handlelength": 2.4,
}
WIDTH = 3.4  # inches: one column of a two-column page


class Display:
    """A figure that remembers what it shows: draw it with `plot`, keep it with `save`.

    After `plot`, `ax_` holds the axes drawn on (an array of them where there are several) and `figure_` the figure.
    """

    ax_: Any
    figure_: Figure

    def save(self, *paths: str | Path) -> None:
        """Write the figure to each path, PNG, PDF or SVG by its ending; the same data give the same bytes."""
        if not hasattr(self, "figure_"):
            raise InputError("the display is not drawn yet: call plot() first")
        for path in paths:
            save_figure(self.figure_, path)


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write `figure`, whole or not at all: 300 dots an inch, fonts embedded as outlines, no date."""
    import matplotlib as mpl

    from calibrant.files import write_bytes

    kind = Path(path).suffix.lower().lstrip(".")
    dateless: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        "svg": {"Date": None},
    }
    if kind not in dateless:
        raise InputError(f"path must end in .png, .pdf or .svg, not {Path(path).name!r}")
    content = io.BytesIO()
    with mpl.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "calibrant"}):
        figure.savefig(content, format=kind, dpi=300, bbox_inches="tight", metadata=dateless[kind])
    write_bytes(Path(path), content.getvalue())


def styled(ax: Axes | None, *, height: float = 2.6, width: float = WIDTH, panels: int = 1) -> Any:
    """The axes to draw on: `ax` itself or those of a new figure (an array where `panels` > 1), in our style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    if ax is not None:
        return ax
    with mpl.rc_context(RC):
        # not through pyplot: a figure that nobody closes must not pile up, nor open a window
        figure = Figure(figsize=(width * panels * (0.8 if panels > 1 else 1), height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
    return axes if panels > 1 else axes[0]


def outside_legend(ax: Any) -> None:
    """A legend to the right of `ax`, where it hides nothing."""
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def percent_axis(*axes: Any) -> None:
    """Show fractions on these axes (`ax.xaxis`, `ax.yaxis`) as percent."""
    for axis in axes:
        axis.set_major_formatter(lambda value, _: f"{round(100 * value, 6):g} %")
