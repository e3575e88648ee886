"""The page's charts as Vega-Lite, made with altair: their data have names, and the page fills them in."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from calibrant.report.style import HEAT, ID_COLOR, MUTED, OVER, UNDER, LineStyle

_SIZE = 250
DIAGONAL = "#8a8f95"  # seen on light and on dark paper
_QUARTERS = (0, 0.25, 0.5, 0.75, 1)


def chart_specs(styles: Mapping[str, LineStyle], curves: Sequence[Mapping[str, Any]], *, ood: bool) -> dict[str, Any]:
    """Every chart by name, as JSON values; the data sets they read are `bins`, `shares`, `points` and `cursor`.

    `curves`: the measures that are drawn over coverage, with `name`, `title` and `unit`. `ood`: whether there are OOD
    data; without them the trade-off has no colors.
    """
    charts = {
        "reliability": _reliability(),
        "histogram": _histogram(),
        "tradeoff": _trade_off(ood),
    }
    charts.update({f"curve-{one['name']}": _lines(one["title"], one["unit"], styles) for one in curves})
    return {name: json.loads(_dressed(chart).to_json()) for name, chart in charts.items()}


@functools.cache
def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, as altair's converter ships them; safe inside a script element."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub forgets the default
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _dressed(chart: Any) -> Any:
    """The common look: colors of text and lines are left to the style sheet, which knows light from dark."""
    return (
        chart.configure(font="system-ui, sans-serif", background="transparent", aria=False)
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", labelPadding=5, titlePadding=8)
    )


def _axis(**options: Any) -> Any:
    import altair as alt

    shown = "round(1e5 * datum.value) / 1e3 + ' %'"
    return alt.Axis(labelExpr=shown, tickCount=5, ticks=False, domain=False, **options)


def _reliability() -> Any:
    import altair as alt

    base = alt.Chart(alt.NamedData("bins"))
    unit = alt.Scale(domain=[0, 1], nice=False)
    x = alt.X("left:Q", scale=unit, axis=_axis(title="Confidence", values=_QUARTERS))
    tips = [
        alt.Tooltip("range:N", title="confidence"),
        alt.Tooltip("count:Q", format=",", title="inputs"),
        alt.Tooltip("accuracy:Q", format=".1%"),
        alt.Tooltip("confidence:Q", format=".1%", title="mean confidence"),
    ]
    y = alt.Y("zero:Q", scale=unit, axis=_axis(title="Accuracy", values=_QUARTERS))
    accuracy = base.mark_rect(color=ID_COLOR, opacity=0.8).encode(x=x, x2="right:Q", y=y, y2="accuracy:Q", tooltip=tips)
    tone = alt.Scale(domain=["over", "under"], range=[OVER, UNDER])
    gap = base.mark_rect(opacity=0.7).encode(
        x=x, x2="right:Q", y="accuracy:Q", y2="confidence:Q", color=alt.Color("gap:N", scale=tone, legend=None),
        tooltip=tips,
    )  # fmt: skip
    ends = alt.Data(values=[{"left": 0, "zero": 0}, {"left": 1, "zero": 1}])
    diagonal = (
        alt.Chart(ends).mark_line(strokeDash=[4, 3], strokeWidth=1, color=DIAGONAL).encode(x="left:Q", y="zero:Q")
    )
    counts = base.mark_rect(color=MUTED, opacity=0.6).encode(
        x=alt.X("left:Q", scale=unit, axis=None),
        x2="right:Q",
        y=alt.Y("zero:Q", axis=None, scale=alt.Scale(zero=True)),
        y2="count:Q",
        tooltip=tips,
    )
    below = alt.layer(accuracy, gap, diagonal).properties(width=_SIZE, height=_SIZE)
    return alt.vconcat(counts.properties(width=_SIZE, height=38), below, spacing=6)


def _histogram() -> Any:
    import altair as alt

    base = alt.Chart(alt.NamedData("shares"))
    unit = alt.Scale(domain=[0, 1], nice=False)
    tone = alt.Scale(domain=["ID", "OOD"], range=[ID_COLOR, OVER])
    tips = [alt.Tooltip("set:N"), alt.Tooltip("range:N", title="confidence"), alt.Tooltip("share:Q", format=".1%")]
    bars = base.mark_rect(opacity=0.55).encode(
        x=alt.X("left:Q", scale=unit, axis=_axis(title="Confidence", values=_QUARTERS)),
        x2="right:Q",
        y=alt.Y("zero:Q", axis=_axis(title="Share of all inputs"), scale=alt.Scale(domainMax=alt.ExprRef("top"))),
        y2="share:Q",
        color=alt.Color("kind:N", scale=tone, legend=None),
        tooltip=tips,
    )
    return bars.properties(width=_SIZE, height=150).add_params(alt.param(name="top", value=1))


def _look(styles: Mapping[str, LineStyle]) -> dict[str, Any]:
    import altair as alt

    names = list(styles)

    def scale(values: list[Any]) -> Any:
        return alt.Scale(domain=names, range=values)

    dashes = [list(style.dash) or [1, 0] for style in styles.values()]
    return {
        "color": alt.Color("system:N", legend=None, scale=scale([style.color for style in styles.values()])),
        "strokeDash": alt.StrokeDash("system:N", legend=None, scale=scale(dashes)),
        "strokeWidth": alt.StrokeWidth("width:Q", legend=None, scale=None),
    }


def _lines(title: str, unit: str, styles: Mapping[str, LineStyle]) -> Any:
    import altair as alt

    axis = _axis(title=None) if unit == "percent" else alt.Axis(title=None, tickCount=5, ticks=False, domain=False)

    x = alt.X("coverage:Q", scale=alt.Scale(domain=[0, 1]), axis=_axis(title="Coverage", values=_QUARTERS))
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=True), axis=axis)
    tips = [
        alt.Tooltip("system:N"),
        alt.Tooltip("coverage:Q", format=".0%"),
        alt.Tooltip("value:Q", format=".1%" if unit == "percent" else ".4g", title=title),
    ]
    points = alt.Chart(alt.NamedData("points"))
    lines = points.mark_line(clip=True).encode(x=x, y=y, detail="system:N", **_look(styles))
    dots = points.mark_point(size=60, opacity=0, filled=True).encode(x=x, y=y, tooltip=tips)
    cursor = alt.Chart(alt.NamedData("cursor")).mark_rule(strokeWidth=1).encode(x="coverage:Q")
    return alt.layer(lines, dots, cursor).properties(width=310, height=210)


def _trade_off(ood: bool) -> Any:
    import altair as alt

    base = alt.Chart(alt.NamedData("points"))
    x = alt.X("ece:Q", scale=alt.Scale(zero=False, nice=True, padding=24), axis=_axis(title="ECE"))
    y = alt.Y("accuracy:Q", scale=alt.Scale(zero=False, nice=True, padding=16), axis=_axis(title="Accuracy"))
    heat = alt.Scale(scheme=HEAT, domain=[0.5, 1])
    legend = alt.Legend(
        title="OOD detection by the whole system", format=".0%", orient="bottom", gradientLength=220, titleLimit=0
    )
    tips = [alt.Tooltip("system:N")] + [
        alt.Tooltip(f"{name}:Q", format=".1%", title=title)
        for name, title in (("accuracy", "accuracy"), ("ece", "ECE"), ("system_rate", "OOD detection"))
    ]
    color = alt.Color("system_rate:Q", scale=heat, legend=legend) if ood else alt.value(ID_COLOR)
    dots = base.mark_circle(size=110, opacity=1).encode(x=x, y=y, color=color, tooltip=tips if ood else tips[:3])
    names = base.mark_text(align="left", dx=8, dy=-6, fontSize=11).encode(x=x, y=y, text="system:N")
    return alt.layer(dots, names).properties(width=640, height=330)
