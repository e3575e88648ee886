"""Measures of a stream that holds outliers: a share pi of its inputs is OOD, and an answer to one of them is wrong.

ID and OOD inputs are tested apart. Here they are weighted to a stream: each of n ID inputs counts (1 - pi) / n, each of
k OOD inputs pi / k, whatever n and k are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from calibrant import InputError, checks
from calibrant.metrics.arguments import confidence_and_correct, fraction, scores
from calibrant.metrics.bins import bin_index, checked_bins
from calibrant.metrics.declarations import measure
from calibrant.metrics.few_errors import error_reach
from calibrant.metrics.functional import (
    Array,
    Functional,
    absolute_terms,
    array,
    bin_sums,
    curve,
    divide,
    indices,
    mean_of,
    weighted,
)
from calibrant.metrics.ordering import Ordered, cumulated, falling, first_reaching, shared, steps

_WRONG = "wrong answers among those given, {} of the stream being outliers; to answer an outlier is wrong"
_ECE = "ECE of the answers given, {} of the stream being outliers, which are never right"
_AREA = "area under the curve of wrong answers over ID coverage, {} of the stream being outliers"


@measure(
    "OOD accepted", "lower", "percent", "share of the OOD inputs that are accepted",
    of="all ID and OOD", name="ood_acceptance", short="accepted", position=20,
)  # fmt: skip
@weighted
def outliers_accepted(ood_accepted: Any) -> Functional:
    """The share o of outliers that are accepted; `ood_accepted` (k,) of 0 and 1.

    >>> outliers_accepted([1, 0, 0, 1])
    0.5
    """
    return mean_of(_flags("ood_accepted", ood_accepted), (0.0, 1.0))


@measure(
    "wrong, no OOD", "lower", "percent", "error rate of the accepted ID inputs",
    name="wrong_at_0", show="page", position=50,
)  # fmt: skip
@weighted
def error_rate(correct: Any) -> Functional:
    """The share of wrong answers; `correct` (n,) of 0 and 1.

    >>> error_rate([1, 1, 0, 1])
    0.25
    """
    return mean_of(1 - array(checks.measured.correctness("correct", correct)), (0.0, 1.0))


@measure(
    "wrong, 10 % OOD", "lower", "percent", _WRONG.format("10 %"),
    of="all ID and OOD", name="wrong_at_10", options={"share": 0.1}, short="wrong", position=51,
)  # fmt: skip
@measure(
    "wrong, 50 % OOD", "lower", "percent", _WRONG.format("half"),
    of="all ID and OOD", name="wrong_at_50", options={"share": 0.5}, show="page", position=52,
)  # fmt: skip
@weighted
def wrong_answers(id_correct: Any, id_accepted: Any, ood_accepted: Any, *, share: float) -> Functional:
    """The share of wrong answers among those given, in a stream with a `share` pi of outliers:

        ((1 - pi) k e + pi o) / ((1 - pi) k + pi o)

    k is the share of ID inputs that are accepted, e the error rate of these, o the share of outliers that are accepted.
    `id_correct` and `id_accepted` (n,), `ood_accepted` (m,), of 0 and 1. NaN where nothing is accepted.

    >>> wrong_answers([1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0], share=0.5)
    0.333
    """
    pi, taken, other = _share(share), _flags("id_accepted", id_accepted), _flags("ood_accepted", ood_accepted)
    right = _like("id_correct", array(checks.measured.correctness("id_correct", id_correct)), "id_accepted", taken)
    wrong = taken * (1 - right)

    def under(id_weights: Array, ood_weights: Array) -> Array:
        inside = (1 - pi) * np.stack([id_weights @ wrong, id_weights @ taken]) / id_weights.sum(1)
        outliers = pi * (ood_weights @ other) / ood_weights.sum(1)
        return divide(inside[0] + outliers, inside[1] + outliers)

    return Functional((len(taken), len(other)), under)


@measure(
    "ECE, 10 % OOD", "lower", "percent", _ECE.format("10 %"),
    of="all ID and OOD", name="stream_ece_10", options={"share": 0.1}, short="ECE", position=53,
)  # fmt: skip
@measure(
    "ECE, 50 % OOD", "lower", "percent", _ECE.format("half"),
    of="all ID and OOD", name="stream_ece_50", options={"share": 0.5}, show="page", position=54,
)  # fmt: skip
@weighted
def stream_calibration_error(
    id_forecast: Any,
    id_correct: Any,
    ood_forecast: Any,
    id_accepted: Any = None,
    ood_accepted: Any = None,
    *,
    share: float,
    bins: int = 15,
) -> Functional:
    """The ECE of ID inputs and outliers together, in a stream with a `share` pi of outliers, which are never right.

    The forecast is the stated probability that the answer is right: the trust of a rule that has one, else the
    confidence. `id_forecast` and `id_correct` (n,),
    `ood_forecast` (k,); with `id_accepted` (n,) and `ood_accepted` (k,), of the accepted alone. Bins as in
    `expected_calibration_error`, whose value it has with pi = 0. As its interval, this one is extended where few of the
    ID answers are wrong, or few are right, by as much as these weigh among all answers.

    >>> stream_calibration_error([0.9, 0.9], [1, 1], [0.9, 0.9], share=0.1)
    0.0
    """
    pi, size = _share(share), checked_bins(bins)
    level, right = confidence_and_correct(id_forecast, id_correct)
    other = checks.measured.unit_interval("ood_forecast", ood_forecast)
    taken = _like("id_accepted", _flags("id_accepted", id_accepted, len(level)), "id_forecast", array(level))
    through = _like("ood_accepted", _flags("ood_accepted", ood_accepted, len(other)), "ood_forecast", array(other))
    places = indices(bin_index(level, size)), indices(bin_index(other, size))
    residuals = taken * (right - array(level)), -through * array(other)

    def gaps_and_given(id_weights: Array, ood_weights: Array) -> tuple[Array, Array]:
        shares = (1 - pi) / id_weights.sum(1), pi / ood_weights.sum(1)
        parts = zip(shares, places, (id_weights, ood_weights), residuals)
        gaps = sum(
            part[:, None] * bin_sums(place, weights * residual, size) for part, place, weights, residual in parts
        )
        given = shares[0] * (id_weights @ taken) + shares[1] * (ood_weights @ through)
        return np.asarray(gaps), given

    def under(*weights: Array) -> Array:
        gaps, given = gaps_and_given(*weights)
        return divide(np.abs(gaps).sum(1), given)

    def vector(*weights: Array) -> Array:
        gaps, given = gaps_and_given(*weights)
        return divide(gaps, given[:, None])

    def reach(confidence_level: float, id_weights: Array, ood_weights: Array) -> Array:
        _, given = gaps_and_given(id_weights, ood_weights)
        answered = (1 - pi) * (id_weights @ taken) / id_weights.sum(1)
        delta = error_reach(right, id_weights * taken, confidence_level)
        return np.full(2, delta * float(np.nan_to_num(divide(answered, given))[0]))

    return Functional((len(level), len(other)), under, terms=absolute_terms(vector), reach=reach)


@measure(
    "area, 10 % OOD", "lower", "percent", _AREA.format("10 %"),
    of="all ID and OOD", name="stream_aurc_10", options={"share": 0.1}, show="page", position=57,
)  # fmt: skip
@measure(
    "area, 50 % OOD", "lower", "percent", _AREA.format("half"),
    of="all ID and OOD", name="stream_aurc_50", options={"share": 0.5}, show="page", position=58,
)  # fmt: skip
@weighted
def stream_aurc(id_acceptance: Any, id_correct: Any, ood_acceptance: Any, *, share: float) -> Functional:
    """The area under `wrong_answers` over ID coverage, sum of (ID coverage gained) x wrong answers, in [0, 1].

    `id_acceptance` and `id_correct` (n,), `ood_acceptance` (k,); tied inputs are accepted together. With pi = 0 it is
    the AURC.

    >>> stream_aurc([0.9, 0.8], [1, 1], [0.85, 0.1], share=0.5)
    0.167
    """
    risk_under, sizes = _curve(id_acceptance, id_correct, ood_acceptance, share)

    def under(*weights: Array) -> Array:
        covered, risk = risk_under(*weights)
        area: Array = (steps(covered) * risk).sum(1)
        return area

    return Functional(sizes, under)


@curve
def stream_risk(
    id_acceptance: Any, id_correct: Any, ood_acceptance: Any, coverages: Sequence[float], *, share: float
) -> Functional:
    """`wrong_answers` at each of the ID `coverages`, (len(coverages),): risk over coverage, with outliers.

    >>> stream_risk([0.9, 0.8], [1, 1], [0.85, 0.1], [0.5, 1.0], share=0.5)
    array([0.   , 0.333])
    """
    risk_under, sizes = _curve(id_acceptance, id_correct, ood_acceptance, share)
    goals = [fraction("coverages", goal) for goal in coverages]
    if not goals:
        raise InputError("coverages is empty")

    def under(*weights: Array) -> Array:
        covered, risk = risk_under(*weights)
        return np.take_along_axis(risk, first_reaching(covered, goals), axis=1)

    return Functional(sizes, under)


def _curve(
    id_acceptance: Any, id_correct: Any, ood_acceptance: Any, share: float
) -> tuple[Callable[..., tuple[Array, Array]], tuple[int, int]]:
    """A function from weights to ID coverage and wrong answers (R, G) at G distinct ID acceptances; sizes (n, k)."""
    pi, value = _share(share), scores("id_acceptance", id_acceptance)
    right = array(checks.measured.correctness("id_correct", id_correct))
    wrong, other = 1 - _like("id_correct", right, "id_acceptance", value), scores("ood_acceptance", ood_acceptance)
    parts_under = _parts(value, wrong, other)

    def under(*weights: Array) -> tuple[Array, Array]:
        covered, errors, outliers = parts_under(*weights)
        given = np.maximum((1 - pi) * covered + pi * outliers, np.finfo(float).tiny)
        return covered, ((1 - pi) * errors + pi * outliers) / given

    return under, (len(value), len(other))


@shared
def _parts(value: Array, wrong: Array, other: Array) -> Ordered:
    """A function from weights to the shares (R, G) of ID inputs, of wrong ones and of outliers that are accepted."""
    levels, place = falling(value)
    entry = np.searchsorted(-levels, -other)  # the first of the thresholds at which an outlier is accepted

    def under(id_weights: Array, ood_weights: Array) -> tuple[Array, Array, Array]:
        size = id_weights.sum(1)[:, None]
        count, errors = (cumulated(place, part, len(levels)) for part in (id_weights, id_weights * wrong))
        outliers = cumulated(entry, ood_weights, len(levels) + 1)
        return count / size, errors / size, outliers[:, :-1] / outliers[:, -1:]

    return under


def _share(share: float) -> float:
    if not 0 <= share < 1:
        raise InputError(f"share must lie in [0, 1), not {share}; it is the share of outliers in the stream")
    return float(share)


def _flags(name: str, value: Any, size: int | None = None) -> Array:
    """(n,) of 0 and 1; None: `size` ones."""
    if value is None and size is not None:
        return np.ones(size)
    flags = checks.shaped(name, checks.values(name, value), dims=1)
    if not bool(((flags == 0) | (flags == 1)).all()):
        raise InputError(f"{name} must hold only 0 (rejected) and 1 (accepted)")
    return array(flags)


def _like(name: str, value: Array, other: str, reference: Array) -> Array:
    if len(value) != len(reference):
        raise InputError(f"{name} has {len(value)} entries, but {other} has {len(reference)}")
    return value
