"""The catalogue of measures: each is declared once, at its function, and every table, file and page reads it here.

    @measure("ECE", "lower", "percent", "expected calibration error of the accepted ID inputs", name="ece")
    @weighted
    def expected_calibration_error(confidence, correct, bins=15): ...

A declared function is given what its arguments are called: see `ARGUMENTS`. The same decorator, `calibrant.measure`,
declares a measure that lives outside the package; there it may stand at any function of arrays that returns a number.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

from calibrant import InputError
from calibrant.metrics.functional import is_measure

Of = Literal["accepted ID", "all ID", "accepted ID and OOD", "all ID and OOD"]
Direction = Literal["higher", "lower", "neither"]
Unit = Literal["percent", "number"]
Show = Literal["terminal", "slider", "markdown", "page"]
Function = TypeVar("Function", bound=Callable[..., Any])

ARGUMENTS: Mapping[str, str] = {
    "confidence": "confidence",
    "forecast": "forecast",
    "correct": "correct",
    "predicted": "predicted",
    "labels": "labels",
    "acceptance": "acceptance",
    "scores": "ood_score",
    "accepted": "accepted",
}
"""What a measure of ID inputs can be given, by the name of its argument, and the attribute of `Predictions` it is.

A measure of ID and OOD inputs has the same with `id_` and `ood_` in front; OOD inputs have no labels, so there is
neither `ood_labels` nor `ood_correct`. `accepted`, bool, is for measures of all inputs. `bins` is the number of bins.
"""
_OWN_COLUMNS = ("system", "wanted_coverage", "ood", "seeds", "threshold_from", "n_id", "n_ood", "measures")


@dataclass(frozen=True)
class DeclaredMeasure:
    """A declared measure; `measure` explains the fields."""

    name: str
    function: Callable[..., Any]
    label: str
    direction: Direction
    unit: Unit
    sentence: str
    of: Of
    options: Mapping[str, Any] = field(default_factory=dict)
    show: Show = "terminal"
    short: str = ""
    position: int = 1000

    @property
    def arrays(self) -> tuple[str, ...]:
        """The arguments that are arrays, in the function's order."""
        return tuple(name for name in _parameters(self.function, self.options) if name != "bins")

    @property
    def takes_bins(self) -> bool:
        """Whether the function has to be told the number of bins."""
        return "bins" in _parameters(self.function, self.options)

    @property
    def ood(self) -> bool:
        """Whether it needs OOD inputs."""
        return self.of.endswith("OOD")

    @property
    def among_accepted(self) -> bool:
        """Whether it is given the accepted inputs alone."""
        return self.of.startswith("accepted")

    @property
    def takes_accepted(self) -> bool:
        """Whether it is given all inputs, and which of them are accepted."""
        return any(name.endswith("accepted") for name in self.arrays)

    @property
    def at_coverage(self) -> bool:
        """Whether it depends on the threshold; if not, it is of the whole curve or of all inputs."""
        return self.among_accepted or self.takes_accepted

    @property
    def weighted(self) -> bool:
        """Whether it is evaluated under many resamples at once; if not, it is called once per resample."""
        return is_measure(self.function)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of its values: that of a fraction, or any."""
        return (0.0, 1.0) if self.unit == "percent" else (-math.inf, math.inf)

    @property
    def heading(self) -> str:
        """The heading of its column in a narrow table."""
        return self.short or self.label

    @property
    def arrow(self) -> str:
        """Up where higher is better, down where lower is, nothing where neither is."""
        return {"higher": "↑", "lower": "↓", "neither": ""}[self.direction]

    def text(self, value: float) -> str:
        """A value as tables print it, in percent without the sign, or with four digits; a dash where undefined.

        >>> catalogue()["ece"].text(0.1234)
        '12.3'
        """
        if math.isnan(value):
            return "–"
        return f"{100 * value:.1f}" if self.unit == "percent" else f"{value:.4g}"

    def described(self) -> dict[str, Any]:
        """JSON values for the page."""
        names = ("name", "label", "direction", "unit", "sentence", "of", "show", "ood", "at_coverage", "arrow")
        return {name: getattr(self, name) for name in names}


_declared: dict[str, DeclaredMeasure] = {}


def measure(
    label: str,
    direction: Direction,
    unit: Unit,
    sentence: str,
    *,
    of: Of = "accepted ID",
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    show: Show = "terminal",
    short: str = "",
    position: int = 1000,
) -> Callable[[Function], Function]:
    """Decorator: declare a function to be a measure, which tables, files, the page and studies then show.

    Args:
        label: heading of its columns.
        direction: which values are better, "higher", "lower" or "neither".
        unit: "percent" for a fraction, which tables print in percent; "number" for anything else.
        sentence: what it measures; the page shows it.
        of: what the function is given: "accepted ID", the ID inputs accepted at a coverage; "all ID", also for
            measures of the whole curve; "accepted ID and OOD", undefined where fewer than 30 of either kind are
            accepted; "all ID and OOD".
        name: of its columns in CSV, JSON and records; by default the function's.
        options: keywords that the function is always called with. Decorators with other names and options can be
            stacked.
        show: the narrowest place that shows it: "terminal" (everywhere), "slider" (beside the page's slider and over
            coverage, and wherever the next shows it), "markdown" (tables of studies), "page" (the page's table, CSV
            and JSON, which show all).
        short: heading in the terminal where the label is too long.
        position: columns are sorted by it, ours first.

    >>> ece = catalogue()["ece"]
    >>> ece.label, ece.direction, ece.unit, ece.of, ece.arrays
    ('ECE', 'lower', 'percent', 'accepted ID', ('confidence', 'correct'))
    """
    for argument, value, legal in (("direction", direction, Direction), ("unit", unit, Unit), ("of", of, Of)):
        if value not in get_args(legal):
            raise InputError(f"{argument} must be one of {', '.join(get_args(legal))}, not {value!r}")
    if show not in get_args(Show):
        raise InputError(f"show must be one of {', '.join(get_args(Show))}, not {show!r}")

    def declare(function: Function) -> Function:
        chosen = name or str(getattr(function, "__name__", ""))
        made = DeclaredMeasure(
            chosen, function, label, direction, unit, sentence, of, dict(options or {}), show, short, position
        )
        _check(made)
        _declared[chosen] = made
        return function

    return declare


def catalogue() -> dict[str, DeclaredMeasure]:
    """All declared measures by name, in the order of their columns."""
    import calibrant.metrics  # noqa: F401  (whose modules declare ours)

    return dict(sorted(_declared.items(), key=lambda item: item[1].position))


def _check(made: DeclaredMeasure) -> None:
    if not made.name.isidentifier() or made.name in _OWN_COLUMNS or made.name.startswith("accepted_"):
        raise InputError(f"name must be an identifier that no table uses itself, not {made.name!r}")
    known = _declared.get(made.name)
    if known is not None and known.function.__module__ != made.function.__module__:
        raise InputError(f"measure {made.name!r} is declared by {known.function.__module__}; choose another name")
    legal = _legal(made.of)
    for argument in made.arrays:
        if argument not in legal:
            raise InputError(f"a measure of {made.of} has no argument {argument!r}; there are {', '.join(legal)}, bins")
    if not made.arrays:
        raise InputError(f"measure {made.name!r} needs an argument; there are {', '.join(legal)}")


def _legal(of: Of) -> tuple[str, ...]:
    names = tuple(name for name in ARGUMENTS if name != "accepted" or of.startswith("all"))
    if not of.endswith("OOD"):
        return names
    inside = tuple(f"id_{name}" for name in names)
    return inside + tuple(f"ood_{name}" for name in names if name not in ("correct", "labels"))


def _parameters(function: Callable[..., Any], options: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that are to be given: those without a default, `bins`, and optional ones of our vocabulary."""
    known = {*ARGUMENTS, "bins", *(f"{kind}_{name}" for kind in ("id", "ood") for name in ARGUMENTS)}
    return tuple(
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in options and (parameter.default is inspect.Parameter.empty or name in known)
    )
