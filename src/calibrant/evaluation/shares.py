"""Intervals of shares that are 0 or 1, where resampling finds no spread."""

from __future__ import annotations

import math
from collections.abc import Mapping

from calibrant.metrics import Interval
from calibrant.metrics.proportion import proportion

_OF_ACCEPTED = ("accuracy", "wrong_at_0")
_STREAMS = {"wrong_at_10": 0.1, "wrong_at_50": 0.5}


def widened(
    measures: Mapping[str, Interval], level: float, accepted: int, outliers: int, *, everything: bool
) -> dict[str, Interval]:
    """`measures` with the intervals of accuracy, error rates and accepted outliers widened to those of Wilson.

    `accepted` ID inputs and `outliers`, all of them, are what the shares are of. Where `everything` is accepted, the
    share of accepted outliers is 1 by construction, and known. In a stream with a share pi of outliers the wrong
    answers f(e, o) are a function of two shares, and the distances of their limits add up in squares, as in the method
    of variance estimates recovery (Zou & Donner 2008): f + sqrt((f(e', o) - f)^2 + (f(e, o') - f)^2).
    """
    found = dict(measures)
    shares = {name: proportion(_at(found, name) * accepted, accepted, level) for name in _OF_ACCEPTED}
    through = proportion(_at(found, "ood_acceptance") * outliers, outliers, level)
    if not everything:
        shares["ood_acceptance"] = through
    else:
        through = Interval(1.0, 1.0, 1.0)
    for name, pi in _STREAMS.items():
        shares[name] = _stream(shares["wrong_at_0"], through, _at(found, "coverage"), pi)
    for name, share in shares.items():
        value = found.get(name)
        if value is not None and math.isfinite(value.low) and math.isfinite(share.low):
            found[name] = Interval(value.estimate, min(value.low, share.low), max(value.high, share.high))
    return found


def _at(measures: Mapping[str, Interval], name: str) -> float:
    return measures[name].estimate if name in measures else math.nan


def _stream(error: Interval, through: Interval, coverage: float, pi: float) -> Interval:
    """Wrong answers in a stream, as of `metrics.wrong_answers`, from the limits of the two shares that make them up."""

    def wrong(e: float, o: float) -> float:
        given = (1 - pi) * coverage + pi * o
        return ((1 - pi) * coverage * e + pi * o) / given if given > 0 else math.nan

    value = wrong(error.estimate, through.estimate)
    below, above = (
        math.hypot(wrong(e, through.estimate) - value, wrong(error.estimate, o) - value)
        for e, o in ((error.low, through.low), (error.high, through.high))
    )
    return Interval(value, max(value - below, 0.0), min(value + above, 1.0))
