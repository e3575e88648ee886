"""What the numbers mean, in a sentence or two: over- or underconfident, by how much, and where."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant.audit.advice import counted, only
from calibrant.audit.recalibrated import FEWEST_ERRORS
from calibrant.evaluation import Evaluation, Resampling, Row
from calibrant.metrics import Interval, ReliabilityDiagram, auroc
from calibrant.metrics.functional import Array, functional_of
from calibrant.predictions import Predictions

FEW_ROWS = 100
A_POINT = 0.01
ONE_SIDED = 0.025
JOINED = 0.16
"""The probability below which a bin joins its neighbors in a range: one standard deviation."""


def mean_gap(outcome: Predictions, how: Resampling) -> Interval:
    """Mean confidence minus accuracy, with its interval: positive if overconfident on the whole."""
    functional = functional_of(metrics.mean_gap, outcome.confidence.astype(np.float64), outcome.correct)
    return how.band(functional, [outcome]).interval()


def diagnose(diagram: ReliabilityDiagram, gap: Interval, row: Row, ood_rows: list[Row]) -> list[str]:
    """One sentence on the whole, one on where, one for each OOD set, and one each if rows or wrong answers are few.

    A range of neighboring bins counts as over- or underconfident if the answers in it are right so seldom, or so often,
    that of 100 tables of a calibrated system about 5 would have any such range (see `_stands_out`).
    """
    known = not gap.low <= 0 <= gap.high
    sentences = [_whole(gap, row), _where(diagram, known_on_the_whole=known)]
    sentences += [_ood(one, explained=one is ood_rows[0]) for one in ood_rows]
    if row.n_id < FEW_ROWS:
        sentences.append(f"{only(row.n_id)}, so the intervals are wide and little can be told from them.")
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
    ece = f"{100 * row.ece.shown:.1f} % ({100 * row.ece.low:.1f} to {100 * row.ece.high:.1f})"
    error = f"the ECE, the mean distance of confidence and accuracy over bins, is {ece}"
    estimate, low, high = (round(100 * value, 1) + 0.0 for value in (gap.estimate, gap.low, gap.high))  # 0.0 for -0.0
    apart = f"a gap of {estimate:.1f} points ({low:.1f} to {high:.1f})"
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


def _where(diagram: ReliabilityDiagram, *, known_on_the_whole: bool = False) -> str:
    filled = diagram.count > 0
    count = np.where(filled, diagram.count, 0.0)
    said, right = (count * np.nan_to_num(mean) for mean in (diagram.confidence, diagram.accuracy))
    parts = []
    for name, sign in (("overconfident", 1), ("underconfident", -1)):
        apart = filled & (_tails(count, said, right, sign) < JOINED)
        runs = [run for run in _runs(apart) if _stands_out(run, count, said, right, sign)]
        worst = max(runs, key=lambda run: abs(float((said - right)[run].sum())), default=None)
        if worst is not None:
            mean = float((sign * (said - right))[worst].sum() / count[worst].sum())
            low, high = diagram.edges[worst.start], diagram.edges[worst.stop]
            parts.append(f"{name} by {_points(mean)} points at confidences from {100 * low:.0f} to {100 * high:.0f} %")
    if parts:
        return f"It is {' and '.join(parts)}."
    if known_on_the_whole:
        return "No single range of confidence stands out."
    return "In no range of confidence is it further off than chance explains."


def _tails(count: Array, said: Array, right: Array, sign: int) -> Array:
    """The probability of at most this many right answers (`sign` 1), or at least (-1), each right as often as it says.

    That of at least k of n by the binomial distribution, I_p(k, n - k + 1); for few right answers, of many wrong ones.
    """
    from scipy.special import betainc

    size, rate = np.rint(count), np.clip(said / np.maximum(count, 1), 0, 1)
    hits, rate = (size - np.rint(right), 1 - rate) if sign > 0 else (np.rint(right), rate)
    return np.asarray(np.where(hits > 0, betainc(np.maximum(hits, 1), size - hits + 1, rate), 1.0))


def _stands_out(run: slice, count: Array, said: Array, right: Array, sign: int) -> bool:
    """Whether a run of bins is off beyond chance, by the tail of its rows together and Bonferroni's correction.

    Many bins are looked at, and of 15 calibrated ones some single bin is beyond its own 95 % limits in half of all
    tables. The correction is for as many runs as there are bins.
    """
    rows, claimed, hits = (np.array([part[run].sum()]) for part in (count, said, right))
    return bool(_tails(rows, claimed, hits, sign)[0] < ONE_SIDED / np.count_nonzero(count))


def _runs(apart: NDArray[np.bool_]) -> list[slice]:
    """The runs of neighboring bins that are `apart`, each as long as it can be.

    >>> _runs(np.array([True, False, True, True]))
    [slice(0, 1, None), slice(2, 4, None)]
    """
    ends = np.flatnonzero(np.diff(np.concatenate([[False], apart, [False]]).astype(int)))
    return [slice(int(start), int(stop)) for start, stop in zip(ends[::2], ends[1::2])]


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
    named = "" if row.ood == "outliers" else f" ({row.ood})"
    return f"Outliers{named} {verdict} by confidence: {found}."
