"""Whether a table seems to be misread: two classes the wrong way round, fewer right answers than by guessing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.breakdown import in_percent
from calibrant.audit.columns import Layout, class_text
from calibrant.evaluation import Resampling
from calibrant.metrics import Interval, auroc, bootstrap
from calibrant.metrics.functional import Array
from calibrant.metrics.proportion import proportion

SHOWN = 6


def diagnose_reading(columns: Mapping[str, NDArray[Any]], layout: Layout, how: Resampling) -> list[str]:
    """A question if the rows look as though a column meant something else, as all that follows would then be wrong.

    `columns` are the confidence (n,), whether it was right and, where known, what was said and the truth.
    """
    forecast = layout.forecast
    if len(forecast.classes) == 2:
        return diagnose_ranking(columns, forecast.classes, how, binary=forecast.binary)
    if layout.correct is not None:
        return _swapped(columns, layout.correct, how)
    return _below_chance(columns, layout)


def _swapped(columns: Mapping[str, NDArray[Any]], name: str, how: Resampling) -> list[str]:
    """Most answers are wrong, and those that are right have measurably lower confidences."""
    right, level = columns["correct"].astype(bool), columns["confidence"].astype(np.float64)
    if right.mean() >= 0.5 or (area := _below_half([level[~right], level[right]], how)) is None:
        return []
    return [
        f"Most answers count as wrong, and these have the higher confidences: the AUROC of the confidence for"
        f" {name!r} is {in_percent(area)}, below 50 %; does 1 stand for wrong in {name!r}?"
    ]


def _below_chance(columns: Mapping[str, NDArray[Any]], layout: Layout) -> list[str]:
    """Measurably fewer answers are right than if they were drawn by lot."""
    if "truth" not in columns:
        return []
    known = layout.classes or {class_text(value) for name in ("said", "truth") for value in set(columns[name].tolist())}
    share = proportion(float(columns["correct"].sum()), len(columns["correct"]))
    if not share.high < 1 / max(len(known), 2):
        return []
    shown = ", ".join(layout.classes[:SHOWN]) + (", ..." if len(layout.classes) > SHOWN else "")
    asked = (
        f"are the classes in another order than {shown}"
        if layout.classes
        else f"does each class have the same name in {layout.label!r} and {layout.predicted!r}"
    )
    return [
        f"Fewer answers are right, {in_percent(share)}, than if one of {len(known):,} classes were drawn by lot"
        f" ({100 / len(known):.1f} %); {asked}?"
    ]


def diagnose_ranking(
    columns: Mapping[str, NDArray[Any]], classes: Sequence[str], how: Resampling, *, binary: bool
) -> list[str]:
    """A warning if the positive class has measurably lower scores than the other one: an AUROC below 1/2.

    `columns` are the confidence (n,), what was said and the truth, the names of two `classes`; `binary` says whether
    one number per row was given and not two.
    """
    if len(classes) != 2 or "truth" not in columns:
        return []
    positive, level = columns["truth"] == classes[1], columns["confidence"].astype(np.float64)
    score = np.where(columns["said"] == classes[1], level, 1 - level)
    parts: list[Array] = [score[~positive], score[positive]]
    if (area := _below_half(parts, how)) is None:
        return []
    asked = (
        f"is it the probability of class {classes[0]}"
        if binary
        else f"are its columns in another order than {classes[0]}, {classes[1]}"
    )
    return [
        f"The score ranks the two classes the wrong way round: its AUROC for class {classes[1]} is {in_percent(area)},"
        f" below 50 %; {asked}?"
    ]


def _below_half(parts: list[Array], how: Resampling) -> Interval | None:
    """The AUROC of two samples of scores, the larger expected in the second, if it is measurably below 1/2."""
    if not all(map(len, parts)) or auroc(*parts) >= 0.5:
        return None
    area = bootstrap(auroc, *parts, resamples=how.resamples or 200, level=how.level, seed=how.seed)
    return area if area.high < 0.5 else None
