"""What every objective of a selector offers, and how one is made from its name and options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import Tensor

from calibrant import InputError, slots

Need = Literal["cross_entropy", "outliers"]


class SelectorExamples(NamedTuple):
    """Validation examples: confidence r, correctness c and, where the objective needs them, two things more.

    `confidence`, `correct` and `cross_entropy`, which is -log p(y | x), have shape (n,). `outliers` (m,) are the
    selector's logits at m outliers.
    """

    confidence: Tensor
    correct: Tensor
    cross_entropy: Tensor | None = None
    outliers: Tensor | None = None


class SelectorObjective(ABC):
    """A scalar to minimize, of the selector's logits at validation examples.

    One of your own is a subclass, best a frozen dataclass whose fields are its options, registered under a name:
    `@register("objective", "my_name")`. `Selector("my_name", **options)` then builds it.

    `needs` names what `fit` must be given beyond confidence, scores and correctness. `keeps_gate` says that thresholds
    are compared with g = sigmoid(logit) itself when Adam has fitted the selector; otherwise they are compared with a
    function of the logit that does not saturate, which ranks the same and has no ties at g = 1.
    """

    keeps_gate: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        """Which of "cross_entropy" and "outliers" `fit` must be given."""
        return ()

    @abstractmethod
    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        """The objective at the selector's logits (n,), g = sigmoid(logits)."""

    def size(self, n: int) -> int:
        """How many examples the objective of n examples sums over; 1 where it is a mean."""
        return 1


def make_objective(objective: str | SelectorObjective, options: Mapping[str, Any]) -> SelectorObjective:
    """The registered objective of that name with those options, or the given one.

    >>> make_objective("calibration", {"weight": 0.1})
    Traceback (most recent call last):
    calibrant.InputError: objective calibration has no option 'weight'; it has eta, width, variant, group, zeta
    """
    if isinstance(objective, str):
        made: SelectorObjective = slots.build("objective", objective, options)
        return made
    if options:
        raise InputError(f"objective is an object already, so set {next(iter(options))!r} where it is made")
    return objective


def describe_objective(
    objective: SelectorObjective, name: str | None = None, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Its name and options; the inverse of `make_objective`.

    An object that was not made by `name` from `options` is looked for among what is registered; its options are the
    fields of its dataclass.

    >>> from calibrant.selective import SelectiveClassification
    >>> describe_objective(SelectiveClassification(coverage=0.7))
    {'objective': 'classification', 'coverage': 0.7, 'penalty': 32.0}
    """
    kind = type(objective)
    if name is None:
        known = (other for other in slots.names("objective") if slots.lookup("objective", other) is kind)
        name = next(known, None)
    if name is None:
        raise InputError(f"objective is a {kind.__name__}, which has no name: register it to save its selector")
    made: Any = objective
    own = slots.lookup("objective", name) is kind and is_dataclass(kind)  # not made by a function
    fields = asdict(made) if own else dict(options or {})
    return {"objective": name, **fields}
