"""What a sweep tries: values of settings, and every combination of them as a trial."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import product
from typing import Any

from calibrant import InputError
from calibrant.config.bounded_yaml import parse_yaml
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme

ALIASES = {"gamma": "finetune.gamma", "beta": "posterior.beta", "rate": "fit.rate", "epochs": "fit.epochs"}
BASELINE = "baseline"
_DOTS = "..."


@dataclass(frozen=True)
class Parameter:
    """A setting by its dotted name or alias, and the values to try."""

    name: str
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str) -> Parameter:
        """Read `name=value,value,...`; after two numbers, `...` goes on with their step up to the next one.

        >>> Parameter.parse("lambda=0.2,0.4,...,1,2,...,4").values
        (0.2, 0.4, 0.6, 0.8, 1, 2, 3, 4)
        """
        name, equals, listed = text.partition("=")
        try:
            found = parse_yaml(f"[{listed}]")
        except ValueError:
            found = None
        if not equals or not name.strip() or not found or any(value is None for value in found):
            raise InputError(f"param {text!r} must look like lambda=0.2,0.4,1")
        values = tuple(_filled([_exponent(value) for value in found], text))
        repeated = next((value for index, value in enumerate(values) if value in values[:index]), None)
        if repeated is not None:
            raise InputError(f"param {text!r} has the value {repeated} twice; leave one out")
        near = difflib.get_close_matches(name.strip(), [*ALIASES, "lambda"], n=1, cutoff=0.75)
        if near and near[0] != name.strip():
            raise InputError(f"param {text!r}: there is no setting {name.strip()}; did you mean {near[0]}?")
        return cls(name.strip(), values)

    def key(self, scheme: Scheme) -> str:
        """The dotted name of the setting; lambda is the weight of the scheme's family."""
        if self.name == "lambda":
            return f"calibration.weight.{scheme.family}"
        return ALIASES.get(self.name, self.name)


def _exponent(value: Any) -> Any:
    """`1e-3` as a number, which YAML takes for text."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def _filled(values: Sequence[Any], text: str) -> Iterator[Any]:
    """`values` with every `...` replaced by the numbers it stands for, in decimal arithmetic."""
    for index, value in enumerate(values):
        if value != _DOTS:
            yield value
            continue
        around = [*values[max(0, index - 2) : index], *values[index + 1 : index + 2]]
        if len(around) != 3 or not all(isinstance(one, (int, float)) for one in around):
            raise InputError(f"param {text!r} needs two numbers before the dots and one after them")
        before, last, end = (Decimal(str(one)) for one in around)
        step = last - before
        if step == 0 or (end - last) % step != 0 or (end - last) / step < 1:
            raise InputError(f"param {text!r} does not reach {end} from {last} in steps of {step}")
        yield from (_number(last + step * count) for count in range(1, int((end - last) / step)))


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)


@dataclass(frozen=True)
class TrialSpec:
    """One trial: `scheme` under the settings of the sweep with `overrides`; `params` are the values as they were given.

    The baseline, which the others are held against, has none.
    """

    name: str
    scheme: str
    params: Mapping[str, Any]
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """`scheme` under `settings`, with every combination of the values of `parameters`.

    >>> swept = (Parameter.parse("lambda=1,2"), Parameter.parse("rate=0.1,0.2"))
    >>> sweep = Sweep(Settings(), Scheme.parse("CBNN"), swept)
    >>> [trial.name for trial in sweep.trials()]
    ['lambda=1 rate=0.1', 'lambda=1 rate=0.2', 'lambda=2 rate=0.1', 'lambda=2 rate=0.2']
    >>> sweep.baseline().scheme
    'BNN'
    """

    settings: Settings
    scheme: Scheme
    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        if not self.parameters:
            raise InputError("param is missing: name a setting and its values, as in lambda=0.2,0.4,1")
        names = [parameter.key(self.scheme) for parameter in self.parameters]
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            raise InputError(f"param {twice} is given twice; put all of its values into one")
        if self._sweeps_lambda and not self.scheme.calibrated:
            raise InputError(f"scheme {self.scheme} has no calibration regularizer, so there is no lambda to sweep")
        for trial in self.trials():
            self.settings.with_(*trial.overrides)

    @property
    def _sweeps_lambda(self) -> bool:
        return any(parameter.key(self.scheme).startswith("calibration.") for parameter in self.parameters)

    def trials(self) -> list[TrialSpec]:
        """All combinations, the last parameter varying fastest."""
        found = []
        for values in product(*(parameter.values for parameter in self.parameters)):
            params = {parameter.name: value for parameter, value in zip(self.parameters, values)}
            name = " ".join(f"{key}={_text(value)}" for key, value in params.items())
            overrides = tuple(f"{p.key(self.scheme)}={json.dumps(v)}" for p, v in zip(self.parameters, values))
            found.append(TrialSpec(name, str(self.scheme), params, overrides))
        return found

    def baseline(self) -> TrialSpec:
        """What the rule compares with: lambda = 0 where the regularizer is swept, else the settings as they are."""
        plain = replace(self.scheme, calibrated=False) if self._sweeps_lambda else self.scheme
        return TrialSpec(BASELINE, str(plain), {})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
