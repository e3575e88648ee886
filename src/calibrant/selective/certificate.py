"""A certificate: bounds of error, accepted outliers and coverage together, from examples that nothing else has touched.

A threshold is certified by an intersection-union test (Berger 1982): each of the promises is tested on its own at the
full level, and all must hold. Thresholds are tested in an order fixed beforehand, as in `guarantees`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import Tensor

from calibrant import InputError, checks
from calibrant.selective.guarantees import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    first_index,
    fixed_sequences,
    starting_places,
)
from calibrant.selective.thresholds import Threshold


@dataclass(frozen=True)
class Promise:
    """What is to be certified; the fields are those of `Certificate`."""

    max_error: float
    max_outliers: float
    min_coverage: float | None = None
    delta: float = 0.1
    population: str = "outliers"

    def __post_init__(self) -> None:
        limits = {"max_error": self.max_error, "max_outliers": self.max_outliers, "delta": self.delta}
        if self.min_coverage is not None:
            limits["min_coverage"] = self.min_coverage
        for name, value in limits.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
                raise InputError(f"{name} must lie in (0, 1), not {value}")
        if not isinstance(self.population, str) or not self.population.strip():
            raise InputError("population must say in words which outliers were held out, such as 'street-view digits'")


@dataclass(frozen=True)
class Certificate(Promise):
    """What holds at `threshold`, all together, with probability at least 1 - `delta` over the held-out examples.

    - Of the ID inputs that are accepted, at most `max_error` are answered wrongly.
    - Of the outliers called `population`, at most `max_outliers` are accepted.
    - Of the ID inputs, at least `min_coverage` are accepted (None: not promised).

    These are statements about the two distributions that the held-out examples were drawn from. Nothing is claimed
    about any other population of outliers, about shifted inputs, or about a single input or subgroup.

    Attributes:
        threshold: accept from here on; None where no threshold could be certified.
        accepted: held-out ID examples that are accepted, of `total`; `errors` of them are answered wrongly.
        outliers_accepted: held-out outliers that are accepted, of `outliers_total`.

    >>> made = Certificate(0.05, 0.1, 0.7, 0.1, "digits", 0.8, 760, 1000, 21, 70, 1000)
    >>> made.wrong_answers(0.5)  # (0.7 * 0.05 + 0.1) / (0.7 + 0.1)
    0.16875
    >>> print(made.sentence())
    With probability at least 90 %, at most 5 % of the answers to in-distribution inputs are wrong, at most 10 % of \
outliers like those held out (digits) are answered, and at least 70 % of in-distribution inputs are answered; \
nothing is claimed about other outliers.
    """

    threshold: float | None = None
    accepted: int = 0
    total: int = 0
    errors: int = 0
    outliers_accepted: int = 0
    outliers_total: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        number = type(self.threshold) in (int, float)
        if self.threshold is not None and not (number and not math.isnan(self.threshold)):
            raise InputError(f"threshold must be a number or None, not {self.threshold}")
        counts = (self.errors, self.accepted, self.total, self.outliers_accepted, self.outliers_total)
        whole = all(type(count) is int and count >= 0 for count in counts)
        ordered = whole and self.errors <= self.accepted <= self.total and counts[3] <= counts[4]
        if not ordered:
            raise InputError(f"counts of a certificate do not fit together: {counts}")

    def __bool__(self) -> bool:
        return self.threshold is not None

    def __str__(self) -> str:
        return self.sentence()

    @property
    def coverage(self) -> float:
        """The share of the held-out ID examples that is accepted, an estimate."""
        return self.accepted / self.total if self.total else math.nan

    def wrong_answers(self, share: float) -> float:
        """The largest share of wrong answers among all given, in a stream with at most that share of such outliers.

        ((1 - pi) k e + pi o) / ((1 - pi) k + pi o), where pi = `share`, k = `min_coverage`, e = `max_error` and
        o = `max_outliers`; an answered outlier counts as wrong. It holds with the same probability as the rest.
        """
        if self.threshold is None:
            raise InputError("nothing was certified, so that the wrong answers have no bound")
        if self.min_coverage is None:
            raise InputError("min_coverage must be promised for a bound on wrong answers: give it when certifying")
        if not 0 <= share <= 1:
            raise InputError(f"share must lie in [0, 1], not {share}")
        inliers, outliers = (1 - share) * self.min_coverage, share * self.max_outliers
        return (inliers * self.max_error + outliers) / (inliers + outliers)

    def sentence(self) -> str:
        """What is promised, in plain English, or why nothing is."""
        claims = [
            f"at most {_percent(self.max_error)} of the answers to in-distribution inputs are wrong",
            f"at most {_percent(self.max_outliers)} of outliers like those held out ({self.population}) are answered",
        ]
        if self.min_coverage is not None:
            claims.append(f"at least {_percent(self.min_coverage)} of in-distribution inputs are answered")
        claim = f"{', '.join(claims[:-1])}{',' if len(claims) > 2 else ''} and {claims[-1]}"
        sure = f"ith probability at least {_percent(1 - self.delta)}"
        if self.threshold is not None:
            return f"W{sure}, {claim}; nothing is claimed about other outliers."
        data = f"{self.total} in-distribution examples and {self.outliers_total} outliers"
        return f"No threshold could be certified from {data} such that, w{sure}, {claim}.{self._shortage()}"

    def _shortage(self) -> str:
        """Which of the two samples is too small for any certificate."""
        needed = {"outliers": self.max_outliers, "accepted in-distribution examples": self.max_error}
        for name, limit in needed.items():
            least = examples_needed(limit, self.delta)
            if (self.outliers_total if name == "outliers" else self.total) < least:
                return f" At least {least} {name} are needed."
        return ""

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON can hold them."""
        content = asdict(self)
        if self.threshold is not None and math.isinf(self.threshold):
            content["threshold"] = str(self.threshold)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Certificate:
        """What `to_dict` returned, checked."""
        known = {field.name for field in fields(cls)}
        if not isinstance(content, Mapping) or set(content) != known:
            raise InputError(f"a certificate has the fields {', '.join(sorted(known))}, and no others")
        threshold = content["threshold"]
        if threshold in ("inf", "-inf"):
            threshold = float(threshold)
        elif isinstance(threshold, str):
            raise InputError(f"threshold must be a number or None, not {threshold!r}")
        return cls(**{**content, "threshold": threshold})


def examples_needed(limit: float, level: float) -> int:
    """The fewest examples, none of them bad, that show at `level` that at most `limit` are bad.

    >>> examples_needed(0.05, 0.1)  # 0.95^45 <= 0.1
    45
    """
    return math.ceil(math.log(level) / math.log1p(-limit))


def certify_promise(
    gate: Tensor,
    correct: Tensor,
    outlier_gate: Tensor,
    grid: Sequence[Threshold],
    promise: Promise,
    *,
    starts: int = 1,
) -> Certificate:
    """The threshold of `grid` with the largest coverage at which all of `promise` is certified.

    Args:
        gate: (N,) a selector's `ranking` of held-out ID inputs.
        correct: (N,) whether the answers to them are right.
        outlier_gate: (M,) its `ranking` of held-out outliers.
        grid: thresholds, from small to large coverage, fixed without the data given here.
        promise: what is to hold.
        starts: the number of places on the grid from which tests start, each with its share of delta.

    At a threshold, given how many ID inputs are accepted, the wrong answers among them are binomial; so is the number
    of accepted outliers, and that of accepted ID inputs. The hypothesis that some part of the promise is broken is
    rejected where the Clopper-Pearson bound of every part, each at the full level, keeps it: the part that is broken
    keeps it with probability at most the level. Tests run towards larger coverage, up to the first that fails. They
    start where an error of max_error / 2 would probably be certified and where the coverage expected on `grid` would
    be, which depends on N, the grid and the promise only.
    """
    starts = int(checks.positive("starts", starts))
    id_outputs, out_outputs = (x.detach().cpu().double() for x in (gate, outlier_gate))
    right = correct.detach().cpu().double()

    def counts(threshold: Threshold) -> tuple[int, int, int]:
        kept = id_outputs >= threshold.value
        errors = int((right[kept] == 0).sum())
        return int(kept.sum()), errors, int((out_outputs >= threshold.value).sum())

    total, outliers = len(id_outputs), len(out_outputs)
    first = _first(grid, total, promise)
    places = starting_places(first, len(grid), starts)
    level = promise.delta / len(places)
    found = fixed_sequences(
        places, len(grid), lambda j: _holds(promise, level, *counts(grid[j]), total=total, outliers=outliers)
    )
    wanted = asdict(promise)
    if found < 0:
        return Certificate(**wanted, total=total, outliers_total=outliers)
    accepted, errors, out = counts(grid[found])
    return Certificate(
        **wanted,
        threshold=grid[found].value,
        accepted=accepted,
        total=total,
        errors=errors,
        outliers_accepted=out,
        outliers_total=outliers,
    )


def _holds(promise: Promise, level: float, accepted: int, errors: int, out: int, *, total: int, outliers: int) -> bool:
    """Whether every part of the promise is kept by its confidence bound at `level`."""
    return (
        clopper_pearson_upper(errors, accepted, level) <= promise.max_error
        and clopper_pearson_upper(out, outliers, level) <= promise.max_outliers
        and (promise.min_coverage is None or clopper_pearson_lower(accepted, total, level) >= promise.min_coverage)
    )


def _first(grid: Sequence[Threshold], total: int, promise: Promise) -> int:
    """Where testing starts: the smallest coverage at which error and coverage would probably be certified.

    Where an error of max_error / 2 would need more than half of the examples, fewer errors are hoped for.
    """
    needed = max(total / 2, examples_needed(promise.max_error, promise.delta))
    enough = [j for j, threshold in enumerate(grid) if threshold.achieved * total >= needed]
    first = min([first_index(grid, total, promise.max_error, promise.delta), *enough[:1]])
    if promise.min_coverage is None:
        return first
    for j in range(first, len(grid)):
        expected = grid[j].achieved
        spread = math.sqrt(expected * (1 - expected) * (1 / total + 1 / grid[j].total))  # of both samples
        unlucky = max(0, math.floor(total * (expected - 2 * spread)))
        if clopper_pearson_lower(unlucky, total, promise.delta) >= promise.min_coverage:
            return j
    return len(grid) - 1


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.4g} %"
