"""What the numbers mean, in a sentence or two: over- or underconfident, by how much, and where."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant.audit.advice import counted
from calibrant.audit.recalibrated import FEWEST_ERRORS
from calibrant.evaluation import Evaluation, Resampling, Row
from calibrant.metrics import Interval, ReliabilityDiagram, auroc
from calibrant.metrics.functional import functional_of
from calibrant.predictions import Predictions

FEW_ROWS = 100
A_POINT = 0.01


def mean_gap(outcome: Predictions, how: Resampling) -> Interval:
    """Mean confidence minus accuracy, with its interval: positive if overconfident on the whole."""
    functional = functional_of(metrics.mean_gap, outcome.confidence.astype(np.float64), outcome.correct)
    return how.band(functional, [outcome]).interval()


def diagnose(diagram: ReliabilityDiagram, gap: Interval, row: Row, ood_rows: list[Row]) -> list[str]:
    """One sentence on the whole, one on where, one for each OOD set, and one each if rows or wrong answers are few.

    A bin counts as over- or underconfident if its accuracy is further from its confidence than a calibrated system's
    would be in 95 of 100 tables: |acc - conf| > 1.96 sqrt(conf (1 - conf) / n).
    """
    sentences = [_whole(gap, row), _where(diagram)]
    sentences += [_ood(one, explained=one is ood_rows[0]) for one in ood_rows]
    if row.n_id < FEW_ROWS:
        sentences.append(f"There are only {row.n_id} rows, so the intervals are wide and little can be told from them.")
    sentences.append(_few_errors(row))
    return [sentence for sentence in sentences if sentence]


def diagnose_detectors(evaluation: Evaluation) -> list[str]:
    """One sentence for each detector's column and OOD set: how well it tells them apart, beside the confidence."""
    sentences, inside = [], evaluation.id
    for name, far in evaluation.ood.items():
        for detector in inside.scores:
            if detector in far.scores:
                value, own = (
                    auroc(inside.scores[detector], far.scores[detector]),
                    auroc(inside.ood_score, far.ood_score),
                )
                better = "better than" if value > own else "no better than"
                sentences.append(
                    f"The detector {detector} tells {name} apart {better} the confidence: AUROC {100 * value:.1f} %"
                    f" beside {100 * own:.1f} %."
                )
    return sentences


def _points(value: float) -> str:
    return f"{100 * abs(value):.1f}"


def _whole(gap: Interval, row: Row) -> str:
    accuracy = row.accuracy.estimate
    said = f"says {100 * (accuracy + gap.estimate):.1f} % on average and is right in {100 * accuracy:.1f} %"
    if gap.low <= 0 <= gap.high and row.n_id < FEW_ROWS:
        verdict = "So few rows do not tell whether it is over- or underconfident on the whole"
    elif gap.low <= 0 <= gap.high:
        verdict = "On the whole neither over- nor underconfident"
    else:
        verdict = "Overconfident on the whole" if gap.estimate > 0 else "Underconfident on the whole"
    limits = sorted((100 * gap.low, 100 * gap.high))
    ece = f"{100 * row.ece.shown:.1f} % ({100 * row.ece.low:.1f} to {100 * row.ece.high:.1f})"
    error = f"the ECE, the mean distance of confidence and accuracy over bins, is {ece}"
    apart = f"a gap of {100 * gap.estimate:.1f} points ({limits[0]:.1f} to {limits[1]:.1f})"
    return f"{verdict}: it {said}, {apart}; {error}."


def _few_errors(row: Row) -> str:
    """How little is known where nearly all answers are right, or nearly none."""
    size, accuracy = row.accepted_id, row.accuracy
    right = round(accuracy.estimate * size) if size else 0
    count, kind = min((size - right, "wrong"), (right, "right"))
    if count >= FEWEST_ERRORS or accuracy.high - accuracy.low < A_POINT:
        return ""
    return (
        f"{counted(count, size, kind)}, so the calibration is known no more closely than the accuracy, which may lie"
        f" between {100 * accuracy.low:.1f} and {100 * accuracy.high:.1f} %."
    )


def _where(diagram: ReliabilityDiagram) -> str:
    count = np.maximum(diagram.count, 1)
    signed = np.where(diagram.count > 0, diagram.confidence - diagram.accuracy, 0.0)
    level = np.nan_to_num(diagram.confidence)
    noise = 1.96 * np.sqrt(level * (1 - level) / count)
    parts = []
    for name, apart in (("overconfident", signed > noise), ("underconfident", -signed > noise)):
        run = _worst_run(apart & (diagram.count > 0), np.abs(signed) * diagram.count)
        if run is not None:
            inside = slice(run[0], run[1] + 1)
            mean = float(np.average(np.abs(signed[inside]), weights=diagram.count[inside]))
            low, high = diagram.edges[run[0]], diagram.edges[run[1] + 1]
            parts.append(f"{name} by {_points(mean)} points at confidences from {100 * low:.0f} to {100 * high:.0f} %")
    if not parts:
        return "In no range of confidence is it further off than chance explains."
    return f"It is {' and '.join(parts)}."


def _worst_run(apart: NDArray[np.bool_], weight: NDArray[np.float64]) -> tuple[int, int] | None:
    """The run of neighboring bins of one kind that adds most to the ECE: first and last bin."""
    runs, start = [], None
    for position, inside in enumerate([*apart.tolist(), False]):
        if inside and start is None:
            start = position
        elif not inside and start is not None:
            runs.append((start, position - 1))
            start = None
    return max(runs, key=lambda run: float(weight[run[0] : run[1] + 1].sum()), default=None)


def _ood(row: Row, *, explained: bool) -> str:
    if math.isnan(row.detection.estimate):
        return f"The OOD set {row.ood} has too few rows ({row.n_ood}) to say how well it is told apart."
    value, low, high = (100 * v for v in (row.detection.shown, row.detection.low, row.detection.high))
    verdict = "are told apart well" if low >= 90 else "are told apart in part" if low > 60 else "are hardly told apart"
    meant = (
        " (how often the best guess at which is which is right)",
        " (how often an outlier has the lower confidence)",
    )
    rate, area = meant if explained else ("", "")
    found = f"detection probability{rate} {value:.1f} % ({low:.1f} to {high:.1f}), AUROC{area}"
    found += f" {100 * row.auroc.estimate:.1f} %"
    if row.auroc.high < 0.5:
        found += (
            ", the wrong way round: it is more confident on these than on the labeled data, so a threshold accepts them"
            " first"
        )
    return f"Outliers ({row.ood}) {verdict} by confidence: {found}."
