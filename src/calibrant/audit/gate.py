"""Conditions on measures under which an audit fails, as in `ece > 0.05` or `error@0.9 > 2%`."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from calibrant import InputError
from calibrant.audit.class_scores import known
from calibrant.evaluation import Row
from calibrant.evaluation.summary import MISSING
from calibrant.metrics import Interval

By = Literal["estimate", "any", "all"]
"""What is compared: the estimate, any value of its interval, or all of them."""
ALIASES = {"error": "wrong_at_0"}
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(%?)"
_CONDITION = re.compile(rf"^\s*([A-Za-z_]\w*)\s*(?:@\s*{_NUMBER})?\s*(<=|>=|<|>)\s*{_NUMBER}\s*$")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """A measure at a coverage, compared with a limit; percentages are fractions.

    >>> condition = Condition.parse("error@0.9 > 2%")
    >>> condition.measure, condition.coverage, condition.limit
    ('wrong_at_0', 0.9, 0.02)

    `name` is what the measure was called in `text`.
    """

    text: str
    name: str
    measure: str
    coverage: float
    sign: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Condition:
        """From MEASURE[@COVERAGE] (<, <=, > or >=) NUMBER[%]; one sentence if it is none."""
        match = _CONDITION.match(text)
        if match is None:
            raise InputError(
                f"condition {text!r} must read MEASURE > NUMBER or MEASURE@COVERAGE > NUMBER, as in 'ece > 0.05' and"
                f" 'error@0.9 > 0.02'; measures are {', '.join(known_measures())}"
            )
        name, sign, limit = match[1], match[4], _fraction(match[5], match[6])
        if name not in known_measures():
            near = difflib.get_close_matches(name, known_measures(), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InputError(
                f"condition {text!r}: there is no measure {name!r}{hint}; there are {', '.join(known_measures())}"
            )
        coverage = 1.0 if match[2] is None else _fraction(match[2], match[3])
        if not 0 < coverage <= 1:
            raise InputError(f"condition {text!r}: the coverage after @ must be above 0 and at most 1, or 100%")
        return cls(" ".join(text.split()), name, ALIASES.get(name, name), coverage, sign, limit)

    @property
    def needs_ood(self) -> bool:
        """Whether the measure is of OOD data too."""
        return known()[self.measure].ood

    def failure(self, row: Row, by: By) -> str | None:
        """The sentence if `row` fails by this condition, or if that cannot be told; else None."""
        value = row.measures.get(self.measure, MISSING)
        where = f" at coverage {self.coverage:g}" if self.coverage < 1 else ""
        against = f" against {row.ood}" if self.needs_ood else ""
        if any(map(math.isnan, self._compared(value, by))):
            what = "is undefined" if math.isnan(value.estimate) else "has no interval"
            return f"{self.text}: {self.name} {what}{where}{against}, so the condition cannot be checked"
        met = (all if by == "all" else any)(_SIGNS[self.sign](one, self.limit) for one in self._compared(value, by))
        return f"{self.text}: {self.name} is {_shown(value)}{where}{against}" if met else None

    @staticmethod
    def _compared(value: Interval, by: By) -> tuple[float, ...]:
        return (value.estimate,) if by == "estimate" else (value.low, value.high)


def known_measures() -> list[str]:
    """The names that conditions may use."""
    return list(dict.fromkeys([*known(), *ALIASES]))


def parse_conditions(texts: Sequence[str], by: str, *, ood: bool) -> list[Condition]:
    """All conditions, refused in one sentence if one is none, or is of OOD data that there are not."""
    if by not in get_args(By):
        raise InputError(f"by must be one of {', '.join(get_args(By))}, not {by!r}")
    conditions = [Condition.parse(text) for text in texts]
    for condition in conditions:
        if condition.needs_ood and not ood:
            raise InputError(
                f"condition {condition.text!r} is about OOD data; give some with --ood (in Python, ood=...)"
            )
    return conditions


def _fraction(number: str, percent: str) -> float:
    return float(number) / 100 if percent else float(number)


def _shown(value: Interval) -> str:
    interval = "" if math.isnan(value.low) else f" ({value.low:.4g} to {value.high:.4g})"
    return f"{value.shown:.4g}{interval}"
