"""The figures as the paper draws them, from numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant.metrics import Interval, ReliabilityDiagram
from calibrant.metrics.bins import bin_edges
from calibrant.report.display import RC, percent_axis
from calibrant.report.histogram_display import ConfidenceHistogramDisplay
from calibrant.report.reliability_display import ReliabilityDisplay
from calibrant.report.style import HEAT, ID_COLOR, LineStyle, line_styles, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TICKS = 6  # more would run into each other
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(RC):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def _styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """Those of `line_styles`; a baseline "FNN + temperature" has the hue of its scheme and a thin dotted line."""
    dots: tuple[tuple[int, ...], ...] = ((1, 1), (1, 3), (4, 1, 1, 1), (3, 3))
    ends = list(dict.fromkeys(name.partition(" + ")[2] for name in names if " + " in name))
    result = {}
    for name in names:
        scheme, _, end = name.partition(" + ")
        style = line_styles([scheme])[scheme]
        result[name] = LineStyle(style.color, dots[ends.index(end) % len(dots)], 1.0) if end else style
    return result


def reliability_grid(
    records: Mapping[str, Mapping[str, Any]],
    accuracy: Mapping[str, float],
    least: int,
    *,
    width: float = 2.5,
    x: str = "Confidence",
) -> Figure:
    """Reliability diagrams side by side, with accuracy and ECE; bins with fewer than `least` inputs are not drawn.

    `records`: per system `count`, `confidence` and `accuracy` of each bin. `width` is that of a panel, in inches, and
    `x` the label of its horizontal axis.
    """
    figure, axes = _figure(1, len(records), (width, 3.1))
    legend: dict[str, Any] = {}
    for ax, (name, found) in zip(axes[0], records.items()):
        confidence, right = (
            np.array([np.nan if v is None else v for v in found[k]]) for k in ("confidence", "accuracy")
        )
        count = np.array(found["count"], np.int64)
        diagram = ReliabilityDiagram(bin_edges(len(count)), confidence, right, count)
        title = f"{name}\naccuracy {percent(accuracy[name])} %, ECE {percent(diagram.calibration_error)} %"
        ReliabilityDisplay(diagram, title, least).plot(ax=ax, counts=False)
        ax.get_legend().remove()
        ax.set_xlabel(x)
        ax.title.set_fontsize(8)
        handles, labels = ax.get_legend_handles_labels()
        legend |= {label.removesuffix(" by"): handle for label, handle in zip(labels, handles)}
    figure.legend(
        legend.values(),
        legend,
        loc="outside lower center",
        ncols=len(legend),
        frameon=False,
        fontsize=RC["legend.fontsize"],
    )
    return figure


def histogram_grid(
    histograms: Mapping[str, Mapping[str, Sequence[int]]], detection: Mapping[str, float], columns: int = 4
) -> Figure:
    """Confidence histograms of "test" and the one OOD set, a panel a system, all to one scale."""
    rows = -(-len(histograms) // columns)
    figure, axes = _figure(rows, columns, (2.4, 2.0))
    figure.set_layout_engine("constrained", wspace=0.06)  # keeps "100 %" apart from the "0 %" of the next panel
    flat, top = axes.ravel(), 0.0
    for ax, (name, found) in zip(flat, histograms.items()):
        shares = {key: np.array(counts) / sum(counts) for key, counts in found.items()}
        inside = shares.pop("test")
        title = f"{name}: detected {percent(detection[name])} %"
        ConfidenceHistogramDisplay(inside, shares, {}, title).plot(ax=ax)
        ax.get_legend().remove()
        ax.label_outer()
        top = max(top, *(float(share.max()) for share in (inside, *shares.values())))
    for ax in flat[: len(histograms)]:
        ax.set_ylim(0, 1.1 * top)
    figure.legend(*flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    for ax in flat[len(histograms) :]:
        ax.set_visible(False)
    return figure


@dataclass(frozen=True)
class Points:
    """A scheme in a scatter plot: x, y and color of each of its settings, with `labels` beside the points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    color: Sequence[float]
    labels: Sequence[str] = ()


def trade_off(series: Sequence[Points], *, x: str, y: str, color: str, limits: tuple[float, float] | None) -> Figure:
    """Points of every scheme, joined in the order of the knob, a marker a scheme and a color a third measure."""
    import matplotlib as mpl

    figure, axes = _figure(1, 1, (4.8, 3.2))
    ax, styles = axes[0, 0], _styles([points.name for points in series])
    every = [c for points in series for c in points.color if np.isfinite(c)]
    low, high = limits or (min(every, default=0.0), max(every, default=1.0))
    with mpl.rc_context(RC):
        shown: Any = None
        for marker, points in zip(MARKERS, series):
            style = styles[points.name]
            ax.plot(points.x, points.y, color=style.color, lw=0.8, alpha=0.7, zorder=1)
            shown = ax.scatter(
                points.x, points.y, s=34, c=points.color, cmap=HEAT, vmin=low, vmax=high, marker=marker,
                edgecolor=style.color, lw=1.0, zorder=2, label=points.name, plotnonfinite=True,
            )  # fmt: skip
            for text, left, up in zip(points.labels, points.x, points.y):
                ax.annotate(text, (left, up), xytext=(4, 3), textcoords="offset points", fontsize=5)
        ax.set(xlabel=x, ylabel=y)
        ax.margins(0.1)
        percent_axis(ax.xaxis, ax.yaxis)
        ax.legend(loc="best")
        bar = figure.colorbar(shown, ax=ax, label=color, pad=0.02)
        percent_axis(bar.ax.yaxis)
    return figure


@dataclass(frozen=True)
class Line:
    """A system in a panel: `values` with intervals at `x`; undefined ones are left out."""

    name: str
    x: Sequence[float]
    values: Sequence[Interval]
    flat: bool = False


def panels(contents: Mapping[str, Sequence[Line]], *, x: str, log: bool = False, x_percent: bool = False) -> Figure:
    """One panel a measure, one line a system with its band; a `flat` line is one value that does not depend on x.

    All panels have the same x; more than three stand in two rows.
    """
    import matplotlib as mpl

    columns = len(contents) if len(contents) <= 3 else -(-len(contents) // 2)
    figure, axes = _figure(-(-len(contents) // columns), columns, (2.9, 2.6))
    flat = axes.ravel()
    names = list(dict.fromkeys(line.name for lines in contents.values() for line in lines))
    styles = _styles(names)
    with mpl.rc_context(RC):
        for ax, (title, lines) in zip(flat, contents.items()):
            for line in lines:
                style = styles[line.name]
                y, low, high = (np.array([getattr(v, k) for v in line.values]) for k in ("estimate", "low", "high"))
                look = {"color": style.color, "lw": style.width, "ls": (0, style.dash) if style.dash else "-"}
                if line.flat:
                    ax.axhline(y[0], label=line.name, **{**look, "lw": 0.8})
                    continue
                ax.plot(line.x, y, marker="o", ms=2.5, label=line.name, **look)
                ax.fill_between(line.x, low, high, color=style.color, alpha=0.1, lw=0)
            ax.set(xlabel=x, title=title)
            if log:
                _logarithmic(ax, sorted({x for line in lines for x in line.x}))
            percent_axis(ax.yaxis)
            if x_percent:
                ax.set(xlim=(0, 1.03), xticks=[0, 0.25, 0.5, 0.75, 1])
                percent_axis(ax.xaxis)
        handles = flat[0].get_legend_handles_labels()
        if len(contents) < len(flat):  # the legend fills the panel that is left over
            flat[-1].set_axis_off()
            flat[-1].legend(*handles, loc="center left")
        else:
            figure.legend(*handles, loc="outside lower center", ncols=columns)
    return figure


def _logarithmic(ax: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with a tick at each of `values`; with 0 among them it is linear below the smallest other."""
    positive = [value for value in values if value > 0]
    if len(positive) < len(values):
        ax.set_xscale("symlog", linthresh=min(positive, default=1.0))
        ax.set_xlim(left=0)
    else:
        ax.set_xscale("log")
    if len(values) <= MOST_TICKS:
        ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.set_xticks([], minor=True)


def dots(contents: Mapping[str, Mapping[str, Mapping[str, Interval]]], order: Sequence[str], *, x: str = "") -> Figure:
    """One panel a key, one row an entry of `order` that some system has, in it one mark a system with its interval."""
    import matplotlib as mpl

    known = {name for systems in contents.values() for values in systems.values() for name in values}
    order = [name for name in order if name in known]
    figure, axes = _figure(1, len(contents), (2.8, 3.2))
    with mpl.rc_context(RC):
        for ax, (title, systems) in zip(axes[0], contents.items()):
            styles = _styles(list(systems))
            for number, (system, values) in enumerate(systems.items()):
                shift = 0.8 * ((number + 0.5) / len(systems) - 0.5)
                rows = [name for name in order if name in values]
                y = [order.index(name) + shift for name in rows]
                middle = np.array([values[name].estimate for name in rows])
                ends = np.array([[values[name].low, values[name].high] for name in rows])
                color = styles[system].color
                ax.hlines(y, ends[:, 0], ends[:, 1], color=color, lw=0.8)
                face = "white" if styles[system].dash else color
                marks = {"marker": MARKERS[number % len(MARKERS)], "ms": 3, "color": color, "mfc": face}
                ax.plot(middle, y, ls="", label=system, **marks)
            ax.set(title=title, xlabel=x, yticks=range(len(order)), ylim=(len(order) - 0.5, -0.5))
            ax.set_yticklabels(order if ax is axes[0, 0] else [])
            percent_axis(ax.xaxis)
        axes[0, -1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def bars(contents: Mapping[str, Mapping[str, float]]) -> Figure:
    """One panel a quantity, one bar a system, its number at the end."""
    import matplotlib as mpl

    figure, axes = _figure(1, len(contents), (3.2, 1.6))
    with mpl.rc_context(RC):
        for ax, (title, values) in zip(axes[0], contents.items()):
            drawn = ax.barh(list(values), list(values.values()), color=ID_COLOR)
            ax.bar_label(drawn, [f"{value:.3g}" for value in values.values()], padding=2, fontsize=7)
            ax.set(title=title, xlim=(0, 1.2 * max(values.values())))
            ax.invert_yaxis()
    return figure


def rule_points(systems: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Figure:
    """Where rules accept: confidence against a detector's score, a panel per system.

    `systems`: by name, for each kind of input ("right", "wrong", or an OOD set) `confidence`, `score` and `accepted`.
    What is rejected is drawn faint.
    """
    figure, axes = _figure(1, len(systems), (3.6, 3.7))
    colors = {"right": ID_COLOR, "wrong": "#d55e00"}
    others = iter(("#009e73", "#cc79a7", "#f0a500", "#56b4e9", "#777777"))
    for kind in next(iter(systems.values())):
        colors.setdefault(kind, next(others, "#777777"))
    for ax, (system, kinds) in zip(axes[0], systems.items()):
        for kind in colors:
            found = kinds[kind]
            accepted = np.array(found["accepted"], bool)
            x, y = np.array(found["score"]), np.array(found["confidence"])
            ax.scatter(x[~accepted], y[~accepted], s=7, color=colors[kind], alpha=0.18, linewidths=0)
            share = f"{kind} {percent(accepted.mean())} %"
            ax.scatter(x[accepted], y[accepted], s=9, color=colors[kind], alpha=0.9, linewidths=0, label=share)
        ax.set_title(system, fontsize=9)
        ax.set(xlabel="Distance to the k-th neighbor", ylabel="Confidence, temperature-scaled")
        percent_axis(ax.yaxis)
        ax.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, fontsize=7, frameon=False, columnspacing=1.0,
            handletextpad=0.1, title="accepted; what is rejected is pale", title_fontsize=7,
        )  # fmt: skip
    return figure
