"""An audit as a notebook shows it: sentences, a table and a reliability diagram in plain HTML, without a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from calibrant.evaluation import Row
from calibrant.metrics import ReliabilityDiagram
from calibrant.metrics.declarations import DeclaredMeasure, catalogue

SIDE = 180


def as_html(title: str, sentences: Sequence[str], rows: Sequence[Row], diagram: ReliabilityDiagram) -> str:
    """The whole, self-contained; colors are the notebook's own, so that it is legible in light and dark."""
    told = "".join(f"<p style='margin:.3em 0'>{escape(sentence)}</p>" for sentence in sentences)
    return (
        f"<div style='max-width:60em'><b>Audit of {escape(title)}</b>{told}"
        "<div style='display:flex;flex-wrap:wrap;gap:1.5em;align-items:flex-start'>"
        f"{_diagram(diagram)}{_table(rows)}</div></div>"
    )


def _table(rows: Sequence[Row]) -> str:
    shown = [one for one in catalogue().values() if one.show == "terminal" and (rows[0].ood is not None or not one.ood)]
    heads = [f"{100 * row.wanted_coverage:g} % accepted" + (f", {row.ood}" if row.ood else "") for row in rows]
    lines = ["".join(f"<th>{escape(head)}</th>" for head in ("", *heads))]
    for measure in shown:
        cells = "".join(f"<td>{_cell(measure, row)}</td>" for row in rows)
        lines.append(
            f"<th style='text-align:left' title='{escape(measure.sentence)}'>{escape(measure.label)}</th>{cells}"
        )
    return "<table><tbody>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</tbody></table>"


def _cell(measure: DeclaredMeasure, row: Row) -> str:
    value, unit = row.measures[measure.name], " %" if measure.unit == "percent" else ""
    if math.isnan(value.estimate):
        return "–"
    limits = "" if math.isnan(value.low) else f" <small>({measure.text(value.low)}–{measure.text(value.high)})</small>"
    return f"{measure.text(value.shown)}{unit}{limits}"


def _diagram(diagram: ReliabilityDiagram) -> str:
    """Accuracy over confidence, a bar for each bin that holds inputs, and the diagonal of calibration."""
    bars = []
    for low, high, accuracy, count in zip(diagram.edges[:-1], diagram.edges[1:], diagram.accuracy, diagram.count):
        if count > 0 and np.isfinite(accuracy):
            about = f"confidence {low:.2f} to {high:.2f}: {accuracy:.3f} right, {int(count):,} inputs"
            bars.append(
                f"<rect x='{SIDE * low:.1f}' y='{SIDE * (1 - accuracy):.1f}' width='{SIDE * (high - low):.1f}'"
                f" height='{SIDE * accuracy:.1f}' fill='currentColor' fill-opacity='.35'><title>{about}</title></rect>"
            )
    return (
        f"<svg viewBox='-22 -6 {SIDE + 30} {SIDE + 32}' width='{SIDE + 30}' role='img' font-size='11'"
        " fill='currentColor' aria-label='Reliability diagram: accuracy over confidence'>"
        f"<rect width='{SIDE}' height='{SIDE}' fill='none' stroke='currentColor' stroke-opacity='.4'/>{''.join(bars)}"
        f"<line x1='0' y1='{SIDE}' x2='{SIDE}' y2='0' stroke='currentColor' stroke-dasharray='4 3'/>"
        f"<text x='{SIDE / 2}' y='{SIDE + 18}' text-anchor='middle'>confidence</text>"
        f"<text x='-8' y='{SIDE / 2}' text-anchor='middle' transform='rotate(-90 -8 {SIDE / 2})'>accuracy</text></svg>"
    )
