"""The numbers of the page: small whatever the size of the data, and equal to the library's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from calibrant import InputError
from calibrant.evaluation import Curves, Evaluation, by_system, coverage_curves
from calibrant.metrics.declarations import DeclaredMeasure, catalogue
from calibrant.metrics.functional import Array
from calibrant.metrics.proportion import proportion
from calibrant.predictions import Predictions
from calibrant.report.page.examples import Example, pick_examples, thumbnail
from calibrant.report.style import LineStyle, title

MOST_NUMBERS = 400_000
MOST_PIXELS = 1_400_000
MOST_EXAMPLES = 4_000
_STEPS = (100, 50, 20, 10)
Z = 1.959963984540054


def coverage_grid(systems: int, ood_sets: int, bins: int) -> list[float]:
    """The slider's positions: every percent, or fewer where many systems would make the page too large."""
    moving = [measure for measure in catalogue().values() if measure.at_coverage]
    outside = sum(measure.ood for measure in moving)
    each = 3 * bins + 9 + len(moving) - outside + ood_sets * (bins + 2 + outside)
    for steps in _STEPS:
        if systems * each * steps <= MOST_NUMBERS:
            return [position / steps for position in range(1, steps + 1)]
    raise InputError(
        f"evaluations hold {systems} systems with {ood_sets} OOD sets, more than one page can show;"
        f" give at most {MOST_NUMBERS // (each * _STEPS[-1])} systems"
    )


def page_payload(
    evaluations: Sequence[Evaluation],
    styles: Mapping[str, LineStyle],
    *,
    bins: int,
    images: Mapping[str, Any],
    classes: Sequence[str] | None,
    rows: Mapping[str, Sequence[Example]] | None = None,
    names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """JSON values: per system everything that the slider moves, at every position; the example inputs; thumbnails.

    OOD sets come in the order of `names`.
    """
    groups = by_system(evaluations)
    known = list(names or ())
    sets = sorted(
        dict.fromkeys(name for one in evaluations for name in one.ood),
        key=lambda name: known.index(name) if name in known else len(known),
    )
    grid = coverage_grid(len(groups), len(sets), bins)
    curves = coverage_curves(evaluations, grid, bins=bins)
    examples = _examples(groups, grid, classes, rows)
    return {
        "coverages": grid,
        "bins": bins,
        "ood": sets,
        "reference": "test inputs" if evaluations[0].validation is None else "validation inputs",
        "measures": described(bool(sets)),
        "systems": [_system(curve, groups[curve.system], styles[curve.system]) for curve in curves],
        "examples": {system: [vars(one) for one in found] for system, found in examples.items()},
        "thumbnails": _thumbnails(examples, images),
    }


def _system(curve: Curves, group: list[Evaluation], style: LineStyle) -> dict[str, Any]:
    return {
        "name": curve.system,
        "color": style.color,
        "dash": list(style.dash),
        "width": style.width,
        "seeds": list(curve.seeds),
        "id_inputs": group[0].id.total,
        "quantity": _quantity(group[0].id),
        "thresholds": [[_plain(value) for value in column] for column in curve.threshold.T],
        "accepted": _mean(curve.accepted),
        "measures": {name: _mean(values) for name, values in curve.measures.items()},
        "right": _right(curve.measures["accuracy"], curve.accepted),
        "count": _whole(curve.sums[0]),
        "confidence": [_numbers(row, 4) for row in curve.sums[1]],
        "correct": _whole(curve.sums[2]),
        "ood": {
            name: {
                "accepted": _mean(found["accepted"]),
                "measures": _told_apart(found, curve.sums[0], curve.ood_sums[name]),
                "inputs": group[0].ood[name].total,
                "count": _whole(curve.ood_sums[name]),
            }
            for name, found in curve.ood.items()
        },
    }


def described(ood: bool) -> list[dict[str, Any]]:
    """The measures that the page shows, those that nothing else shows last; without `ood`, only those of ID inputs.

    `slides` are the few that stand beside the slider and are drawn over coverage. `counted` names the inputs whose
    number stands beside a value: what is accepted says little without it.
    """
    return [
        {**measure.described(), "title": title(measure), "counted": _counted(measure), "slides": _slides(measure)}
        for measure in sorted(catalogue().values(), key=lambda one: one.show == "page")
        if ood or not measure.ood
    ]


def _slides(measure: DeclaredMeasure) -> bool:
    return measure.at_coverage and measure.show in ("terminal", "slider")


def _counted(measure: DeclaredMeasure) -> str:
    if measure.arrays == ("accepted",):
        return "id"
    return "ood" if measure.arrays == ("ood_accepted",) else ""


def _quantity(outcome: Predictions) -> str:
    """What the threshold is compared with."""
    if outcome.selection is None:
        return "confidence"
    return "selector output" if outcome.trust is None else "trust"


def _mean(values: Array) -> list[float | None]:
    """The mean over seeds (S, G); undefined where it is undefined for one of them."""
    return _numbers(values.mean(0), 6)


def _right(accuracy: Array, accepted: Array) -> list[list[float] | None]:
    """The 95 % interval of the mean accuracy over seeds (S, G) at each position; None where nothing is accepted.

    That of Wilson for as many inputs as one seed accepts, because all seeds saw the same ones; with several seeds, the
    error of their mean is added to it in squares.
    """
    seeds = len(accuracy)
    limits: list[list[float] | None] = []
    spread = accuracy.std(0, ddof=1) / math.sqrt(seeds) if seeds > 1 else np.zeros(accuracy.shape[1])
    for share, count, apart in zip(accuracy.mean(0), accepted.mean(0), Z * spread):
        if not math.isfinite(share) or count == 0:
            limits.append(None)
            continue
        found = proportion(share * count, count)
        low, high = share - math.hypot(share - found.low, apart), share + math.hypot(found.high - share, apart)
        limits.append([round(max(low, 0.0), 5), round(min(high, 1.0), 5)])
    return limits


def _told_apart(found: Mapping[str, Array], inside: Array, outside: Array) -> dict[str, list[float | None]]:
    """The measures of an OOD set, without the detection probability where all accepted inputs share one bin.

    It is 1/2 there whatever the inputs, because it only sees the bins.
    """
    measures = {name: _mean(values) for name, values in found.items() if name != "accepted"}
    alone = ((inside + outside) > 0).sum(1) <= 1
    for name in ("detection", "detection_corrected"):
        if name in measures:
            measures[name] = [None if one else value for value, one in zip(measures[name], alone)]
    return measures


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _numbers(values: Iterable[float], digits: int) -> list[float | None]:
    return [round(float(value), digits) if math.isfinite(value) else None for value in values]


def _whole(values: Array) -> list[list[int]]:
    rows: list[list[int]] = np.rint(values).astype(np.int64).tolist()
    return rows


def _examples(
    groups: Mapping[str, list[Evaluation]],
    grid: Sequence[float],
    classes: Sequence[str] | None,
    rows: Mapping[str, Sequence[Example]] | None,
) -> dict[str, list[Example]]:
    """Those of the first seed of each system: the leading ones at every position of the slider, or at every few."""
    for stride in (1, 2, 5, 10, 20):
        positions = grid[::-1][::stride]
        found: dict[str, list[Example]] = {}
        for system, group in groups.items():
            known = None if rows is None else rows.get(system)
            if known is None:
                known = [] if group[0].id.count is not None else pick_examples(group[0], positions, classes=classes)
            found[system] = list(known)
        if sum(map(len, found.values())) <= MOST_EXAMPLES:
            return found
    each = MOST_EXAMPLES // len(found)
    return {system: some[:each] for system, some in found.items()}


def _thumbnails(examples: Mapping[str, Sequence[Example]], images: Mapping[str, Any]) -> dict[str, str]:
    """One picture an input, whichever systems show it, until the page has enough of them; what is seen first first."""
    found: dict[str, str] = {}
    left = MOST_PIXELS
    longest = max((len(some) for some in examples.values()), default=0)
    for position in range(longest):
        for some in examples.values():
            if position >= len(some) or some[position].dataset not in images:
                continue
            one = some[position]
            key = f"{one.dataset}/{one.row}"
            picture = None if key in found else thumbnail(images[one.dataset][one.row])
            if picture is not None and len(picture) <= left:
                found[key] = picture
                left -= len(picture)
    return found
