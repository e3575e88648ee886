"""What the columns of a table may be called, what the user may say about them, and refusals that name columns."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant import InputError
from calibrant.audit.columns import class_text
from calibrant.audit.tables import Table

ROLES: dict[str, tuple[str, ...]] = {
    "confidence": ("confidence", "conf", "max_probability", "max_prob"),
    "probabilities": ("probabilities", "probs", "probability", "softmax", "proba", "y_proba", "y_probs", "y_prob"),
    "logits": ("logits", "logit"),
    "score": ("score", "y_score", "y_prob", "y_proba", "prob", "proba", "probability", "p"),
    "label": ("label", "labels", "y", "y_true", "target", "true", "y_test", "targets", "truth", "true_label"),
    "predicted": ("predicted", "prediction", "pred", "y_pred", "predictions", "preds", "y_hat", "predicted_label"),
    "correct": ("correct", "is_correct", "right"),
}
"""The roles of columns and the names under which they are found; capitals, spaces and hyphens do not matter."""
EACH = {
    "probabilities": re.compile(r"^(?:p|prob|proba|probability)(?:[_.\[](.+?)\]?|(\d+))$"),
    "logits": re.compile(r"^(?:(?:logit|logits)[_.\[](.+?)\]?|(?:l|logit|logits)[_.\[]?(\d+)\]?)$"),
}


@dataclass(frozen=True)
class Wishes:
    """What the user says about a table.

    Attributes:
        columns: columns by role; see `ROLES`. Probabilities and logits are named by one column of lists, by how their
            columns start, or by all of their columns with commas between.
        positive: the class whose probability a score is.
        classes: names of the classes in the order of the probabilities, or how many there are.
        percent: whether probabilities are percentages.
        detectors: columns of outlier scores, larger = more outlying.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    positive: str | None = None
    classes: tuple[str, ...] | int = ()
    percent: bool = False
    detectors: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        columns: Mapping[str, str] | None,
        positive: Any,
        classes: Iterable[Any] | int,
        percent: bool,
        detectors: str | Iterable[str],
    ) -> Wishes:
        """From labels and names of any kind."""
        return cls(
            dict(columns or {}),
            None if positive is None else class_text(positive),
            classes if isinstance(classes, int) else tuple(class_text(one) for one in classes),
            percent,
            (detectors,) if isinstance(detectors, str) else tuple(detectors),
        )


def lacking(table: Table, name: str) -> str:
    """The sentence for a column that is not there, with those that are, and the nearest of them."""
    near = difflib.get_close_matches(name, table.names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
    return f"{table.where} has no column {name!r}; it has {shown}{hint}"


def listed(table: Table, name: str) -> tuple[str, ...]:
    """The columns that `a,b,c` lists, or that start with `name`."""
    parts = tuple(part.strip() for part in name.split(","))
    if len(parts) > 1:
        return parts
    return tuple(column for column in table.names if column.startswith(name))


def check_wishes(table: Table, wishes: Wishes, roles: tuple[str, ...]) -> None:
    """Refuse roles that there are not and columns that the table has not."""
    for role, name in wishes.columns.items():
        if role not in ROLES:
            raise InputError(f"columns names the role {role!r}; there are {', '.join(ROLES)}")
        several = role in EACH and name not in table.names
        wanted = listed(table, name) if several else (name,)
        if role in roles and len(wanted) > 1:
            for column in wanted:
                if column not in table.names:
                    raise InputError(lacking(table, column))
        elif role in roles and name not in table.names:
            raise InputError(lacking(table, name))
    for name in wishes.detectors:
        if name not in table.names:
            raise InputError(lacking(table, name))
