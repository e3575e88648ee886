"""Colors and lines that are the same in every figure and on the page, and that the color-blind can tell apart.

The hues are those of Okabe and Ito. A scheme has the hue of its base (FNN, CFNN, BNN, CBNN), a dash if it was
fine-tuned with confidence minimization, and a heavy line if it is selective; other systems take hues in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calibrant.config.schemes import Scheme
from calibrant.metrics.declarations import DeclaredMeasure

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
ID_COLOR = BLUE
OOD_COLORS = (VERMILLION, ORANGE, PURPLE, GREEN)
OVER, UNDER = VERMILLION, SKY
INK, MUTED, GRID = "#222222", "#666666", "#dddddd"
HEAT = "cividis"
_BASES = {"FNN": VERMILLION, "CFNN": ORANGE, "BNN": BLUE, "CBNN": GREEN}
_CYCLE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
_DASHES: tuple[tuple[int, ...], ...] = ((), (5, 2), (1, 2), (6, 2, 1, 2))


@dataclass(frozen=True)
class LineStyle:
    """The color of a system, its dashes (lengths on and off; none: solid) and its width."""

    color: str
    dash: tuple[int, ...] = ()
    width: float = 1.2


def line_styles(names: Sequence[str]) -> dict[str, LineStyle]:
    """One style for each system; the same schemes look the same wherever they are drawn.

    >>> line_styles(["SCBNN-OCM"])["SCBNN-OCM"]
    LineStyle(color='#009E73', dash=(5, 2), width=2.0)
    """
    others = [name for name in names if _scheme(name) is None]
    result = {}
    for name in names:
        scheme = _scheme(name)
        if scheme is None:
            turn, hue = divmod(others.index(name), len(_CYCLE))
            result[name] = LineStyle(_CYCLE[hue], _DASHES[turn % len(_DASHES)], 1.6)
        else:
            dash = _DASHES[1] if scheme.ocm else ()
            result[name] = LineStyle(_BASES[str(scheme.base)], dash, 2.0 if scheme.selective else 1.2)
    return result


def _scheme(name: str) -> Scheme | None:
    return next((scheme for scheme in Scheme.all() if str(scheme) == name), None)


def title(measure: DeclaredMeasure) -> str:
    """The label of a measure as the heading of a panel or a column.

    >>> from calibrant.metrics import catalogue
    >>> title(catalogue()["accuracy"])
    'Accuracy'
    """
    return measure.label[:1].upper() + measure.label[1:]


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent, an undefined one as a dash.

    >>> percent(0.1234), percent(float("nan"))
    ('12.3', '–')
    """
    return "–" if value != value else f"{100 * value:.{digits}f}"
