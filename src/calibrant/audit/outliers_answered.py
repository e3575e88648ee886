"""What can be done about outliers with what a table holds: a threshold on its best score, and trust."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.paired import Bench, Paired
from calibrant.audit.rejected import threshold_of
from calibrant.audit.sample import Sample
from calibrant.calibrators.choosing import fold_numbers, splits
from calibrant.calibrators.fits import FITS
from calibrant.evaluation import Resampling
from calibrant.metrics.functional import Array

COVERAGE = 0.8
SHARES = (0.1, 0.5)
FEWEST_OUTLIERS = 20
_FITTED_ROWS = 1000
_DETECTORS = 4
_INNER_FOLDS = 3
_GAMMA, _TOP = 0.1, 100
_LARGEST = 80.0  # of a log ratio
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")

Levels = tuple[Array, Array]
"""Of ID rows and of outliers, (n,) and (m,)."""
Mask = NDArray[np.bool_]


def outlier_scores(sample: Sample) -> dict[str, Array]:
    """The scores (n,) that a table allows, larger is more outlying: of its confidence, probabilities, logits, columns.

    Formulas as of the detectors `msp`, `entropy`, `gen`, `energy` and `max_logit`.
    """
    scores = {"confidence": 1 - sample.confidence}
    if sample.probabilities is not None:
        p = np.sort(sample.probabilities, 1)[:, ::-1]
        scores["entropy"] = -(p * np.log(np.maximum(p, np.finfo(np.float64).tiny))).sum(1)
        rest = np.concatenate([p[:, 1:].sum(1, keepdims=True), 1 - p[:, 1:]], 1)
        scores["gen"] = (np.maximum(p * rest, 0)[:, :_TOP] ** _GAMMA).sum(1)
    if sample.logits is not None:
        top = sample.logits.max(1)
        scores["energy"] = -top - np.log(np.exp(sample.logits - top[:, None]).sum(1))
        scores["max_logit"] = -top
    return {**scores, **sample.scores}


def recalibration_of(sample: Sample, *, by_class: bool) -> tuple[Sample, str]:
    """What is recalibrated beside outliers, and how: the classes by a temperature, or a confidence alone."""
    if by_class:
        return sample, "temperature"
    return replace(sample, probabilities=None, logits=None, target=None), "isotonic"


def recalibrated_record(sample: Sample, new: Sample, *, by_class: bool) -> tuple[Array, dict[str, Array]]:
    """The confidence (n,) of `new` rows after what was fitted to `sample`, and the outlier scores that they allow."""
    (fitting, name), (rows, _) = (recalibration_of(one, by_class=by_class) for one in (sample, new))
    p = FITS[name].probabilities(rows.z, FITS[name].fit(fitting.z, fitting.labels))
    return np.minimum(p.max(1) if by_class else p[:, 1], 1), outlier_scores(rows)


def measure_outliers(
    inside: Sample, far: Sample, recalibrated: Levels, how: Resampling
) -> tuple[Paired, str, tuple[str, ...]]:
    """Wrong answers in streams with outliers, at 80 % ID coverage, of several systems.

    `recalibrated` are the confidences after recalibration. Measures by name: "SYSTEM: wrong answers, 10 % outliers"
    (and 50 %) and "SYSTEM: outliers answered", where the system is "confidence", "recalibrated", "score" or, if the
    tables have scores beyond the confidence, "trust". Which score is best, and trust, are fitted on one half of both
    tables and measured on the other. Returned with the score that was best, and the scores that trust read.
    """
    own, theirs = outlier_scores(inside), outlier_scores(far)
    names = [name for name in own if name in theirs]
    columns = tuple(np.stack([part[name] for name in names], 1) for part in (own, theirs))
    answered: dict[tuple[str, float], Levels] = {}
    best, read = Counter[str](), Counter[str]()
    halves = (splits(fold_numbers(len(part), 2, how.seed)) for part in (inside, far))
    for (fit_in, test_in), (fit_out, test_out) in zip(*halves):
        area = _auroc(columns[0][fit_in], columns[1][fit_out])
        test = test_in, test_out
        best[names[int(area.argmax())]] += 1
        levels = {"confidence": (inside.confidence, far.confidence), "recalibrated": recalibrated}
        levels["score"] = (-columns[0][:, area.argmax()], -columns[1][:, area.argmax()])
        acceptances = {(name, share): pair for name, pair in levels.items() for share in SHARES}
        if len(names) > 1 and len(far) >= FEWEST_OUTLIERS:
            entering = sorted(np.argsort(-area)[:_DETECTORS].tolist())
            chosen = columns[0][:, entering], columns[1][:, entering]
            kept, trusted = _trust(chosen, recalibrated, (fit_in, fit_out), [names[i] for i in entering], how.seed)
            read.update(kept)
            acceptances |= {("trust", share): pair for share, pair in trusted.items()}
        for key, pair in acceptances.items():
            taken = answered.setdefault(key, (np.zeros(len(inside)), np.zeros(len(far))))
            parts = _answered(pair[0][test_in], pair[1][test_out])
            for whole, mask, part in zip(taken, test, parts):
                whole[mask] = part
    return _bench(answered, inside.wrong).run(how), best.most_common(1)[0][0], tuple(read)


def _bench(answered: dict[tuple[str, float], Levels], wrong: Array) -> Bench:
    bench = Bench()
    for (name, share), (taken, through) in answered.items():
        columns = np.stack([taken * wrong, taken], 1), through

        def among_given(inside: Array, outside: Array, pi: float = share) -> Array:
            """((1 - pi) k e + pi o) / ((1 - pi) k + pi o), as of `metrics.wrong_answers`."""
            outliers = pi * outside[:, 0]
            given = np.maximum((1 - pi) * inside[:, 1] + outliers, np.finfo(np.float64).tiny)
            return np.asarray(((1 - pi) * inside[:, 0] + outliers) / given)

        bench.add(f"{name}: wrong answers, {100 * share:.0f} % outliers", among_given, *columns)
        if share == SHARES[0]:
            bench.add(f"{name}: outliers answered", lambda inside, outside: outside[:, 0], *columns)
    return bench


def _answered(inside: Array, outside: Array) -> Levels:
    """Whether each is answered, by the threshold that answers 80 % of the ID rows."""
    threshold = threshold_of(inside, inside, coverage=COVERAGE)
    return (inside >= threshold).astype(np.float64), (outside >= threshold).astype(np.float64)


def _auroc(inside: Array, outside: Array) -> Array:
    """The AUROC (S,) of each column of scores (n, S) and (m, S) in telling outliers from ID rows; ties count half."""
    below = []
    for own, theirs in zip(np.sort(inside, 0).T, outside.T):
        places = [np.searchsorted(own, theirs, side=side) for side in _SIDES]
        below.append(np.mean(places) / len(own))
    return np.asarray(below)


def _trust(
    columns: Levels, confidence: Levels, fitting: tuple[Mask, Mask], names: list[str], seed: int
) -> tuple[tuple[str, ...], dict[float, Levels]]:
    """The scores that trust reads, and the trust of all rows for each share of outliers, fitted on `fitting`.

    As of `selective.Trust`, whose ratio needs no torch.
    """
    from calibrant.selective.ratio import fit_ratio

    rng = np.random.default_rng(seed)
    rows = [rng.permutation(np.flatnonzero(mask))[:_FITTED_ROWS] for mask in fitting]
    fitted = fit_ratio(columns[0][rows[0]], columns[1][rows[1]], folds=_INNER_FOLDS, seed=seed)
    ratios = [fitted.log_ratio(scores) for scores in columns]
    result = {}
    for share in SHARES:
        odds = (np.clip(ratio, None, _LARGEST) + np.log(share / (1 - share)) for ratio in ratios)
        pair = [part / (1 + np.exp(each)) for part, each in zip(confidence, odds)]
        result[share] = (pair[0], pair[1])
    return tuple(names[column] for column in fitted.chosen), result
