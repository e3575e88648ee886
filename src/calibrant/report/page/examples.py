"""The inputs themselves: confident mistakes, right answers that were rejected, OOD inputs that were accepted."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.evaluation import Evaluation, share_above
from calibrant.metrics.functional import Array
from calibrant.predictions import Predictions

Kind = Literal["mistake", "rejected", "ood"]
SHOWN = 8
SIDE = 64


@dataclass(frozen=True)
class Example:
    """One input of the set `dataset` ("id" or the name of an OOD set), in row `row` of it.

    It is accepted at a wanted coverage c just where c > `share`, or c = 1. `scores` are the selector's and the
    detectors'; `ranks` say of each what share of the validation inputs (of the ID inputs, where there are none) has a
    lower one.
    """

    kind: Kind
    dataset: str
    row: int
    label: str | None
    predicted: str | None
    confidence: float
    share: float
    scores: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, float] = field(default_factory=dict)


def pick_examples(
    evaluation: Evaluation, coverages: Sequence[float], *, classes: Sequence[str] | None = None, shown: int = SHOWN
) -> list[Example]:
    """All inputs that are among the `shown` most confident of their kind at one of `coverages` at least."""
    inside = evaluation.id
    ranks = _Ranks(evaluation.validation or inside)
    share, right = share_above(evaluation, inside), inside.correct
    early = _leading(inside, ~right, share, coverages, True, shown)
    found = _examples("mistake", "id", inside, share, early, classes, ranks)
    late = _leading(inside, right, share, coverages, False, shown)
    found += _examples("rejected", "id", inside, share, late, classes, ranks)
    for name, outside in evaluation.ood.items():
        share = share_above(evaluation, outside)
        early = _leading(outside, np.ones(len(outside), bool), share, coverages, True, shown)
        found += _examples("ood", name, outside, share, early, classes, ranks)
    return found


def _scores(outcome: Predictions) -> dict[str, Any]:
    return {**({} if outcome.selection is None else {"selector": outcome.selection}), **outcome.scores}


class _Ranks:
    """What share of reference inputs has a lower score."""

    def __init__(self, reference: Predictions) -> None:
        self.sorted = {name: np.sort(values) for name, values in _scores(reference).items()}

    def of(self, scores: Mapping[str, float]) -> dict[str, float]:
        return {
            name: round(float(np.searchsorted(self.sorted[name], value) / len(self.sorted[name])), 4)
            for name, value in scores.items()
            if name in self.sorted
        }


def _leading(
    outcome: Predictions,
    of_kind: NDArray[np.bool_],
    share: Array,
    coverages: Sequence[float],
    accepted: bool,
    shown: int,
) -> list[int]:
    """The rows that are among the `shown` most confident of their kind, accepted or rejected, at any coverage."""
    order = np.argsort(-outcome.confidence, kind="stable")
    order = order[of_kind[order]]
    rows: dict[int, None] = {}
    for coverage in sorted(coverages, key=lambda c: abs(c - 0.5)):  # what is seen first comes first
        inside = (share[order] < coverage) | (coverage == 1)
        rows.update(dict.fromkeys(order[inside == accepted][:shown].tolist()))
    return list(rows)


def _examples(
    kind: Kind,
    dataset: str,
    outcome: Predictions,
    share: Array,
    rows: list[int],
    classes: Sequence[str] | None,
    ranks: _Ranks,
) -> list[Example]:
    def named(value: Any) -> str:
        return classes[int(value)] if classes is not None and 0 <= int(value) < len(classes) else str(int(value))

    columns = _scores(outcome)
    found = []
    for row in rows:
        label = None if outcome.labels is None else named(outcome.labels[row])
        scores = {name: values[row].item() for name, values in columns.items()}
        confidence, before = float(outcome.confidence[row]), float(share[row])
        said = named(outcome.predicted[row])
        found.append(Example(kind, dataset, row, label, said, confidence, before, scores, ranks.of(scores)))
    return found


def thumbnail(image: Any) -> str | None:
    """An image (C, H, W), (H, W, C) or (H, W) as a PNG in a data URI, at most 64 pixels a side; None for other arrays.

    Bytes are shown as they are; floats in [0, 1] as shades, others stretched from their least to their greatest value.
    """
    from PIL import Image

    pixels = np.asarray(image.detach().cpu() if hasattr(image, "detach") else image)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3):
        return None
    if pixels.dtype != np.uint8:
        low, high = min(float(pixels.min()), 0.0), max(float(pixels.max()), 1.0)
        pixels = np.round(255 * (pixels.astype(np.float64) - low) / (high - low)).astype(np.uint8)
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    picture.save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()
