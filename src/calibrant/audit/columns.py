"""Which columns of a table say what, and what they say: confidence, and whether it was right."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import checks
from calibrant.audit.tables import Table, TableBlock

ROLES: dict[str, tuple[str, ...]] = {
    "confidence": ("confidence", "conf", "max_probability", "max_prob"),
    "probabilities": ("probabilities", "probs", "probability", "softmax"),
    "label": ("label", "labels", "y", "y_true", "target", "true"),
    "predicted": ("predicted", "prediction", "pred", "y_pred"),
    "correct": ("correct", "is_correct", "right"),
}
_ONE_EACH = re.compile(r"^(?:p|prob|proba|probability)(?:[_.\[](.+?)\]?|(\d+))$")


@dataclass(frozen=True)
class Rows:
    """Rows that were read: confidence (n,) and, where there are labels, `correct` (n,); what was said, for showing."""

    start: int
    confidence: NDArray[Any]
    correct: NDArray[np.bool_] | None
    predicted: NDArray[Any] | None
    label: NDArray[Any] | None
    done: float


@dataclass(frozen=True)
class Layout:
    """The columns in use; `classes` are the names behind `probabilities`, in their order."""

    table: Table
    confidence: str | None
    probabilities: tuple[str, ...]
    classes: tuple[str, ...]
    label: str | None
    predicted: str | None
    correct: str | None

    @classmethod
    def find(cls, table: Table, chosen: Mapping[str, str] | None = None, *, labeled: bool = True) -> Layout:
        """By the names `chosen` for the roles, else by the usual ones; one sentence if something is missing.

        `labeled=False`: only what the system said matters, as for OOD data.
        """
        roles = tuple(ROLES) if labeled else ("confidence", "probabilities")
        chosen = _checked(table, chosen or {}, roles)
        usual = {role: next((name for name in ROLES[role] if name in table.names), None) for role in roles}
        known = {**usual, **chosen}
        many, classes = _probability_columns(table, known["probabilities"])
        confidence = None if many and "confidence" not in chosen else known["confidence"]
        if not many and confidence is None:
            hint = "name it, or give probabilities as columns p_0, p_1, ... or as lists"
            raise ValueError(f"{_missing(table, 'confidence')}; {hint}")
        label, predicted, correct = (known.get(role) for role in ("label", "predicted", "correct"))
        if labeled and label is None and correct is None:
            raise ValueError(f"{_missing(table, 'label')}; name it, or give a column 'correct' of 0 and 1")
        return cls(table, confidence, () if confidence else many, classes, label, predicted, correct)

    def read(self) -> Any:
        """All rows, as `Rows`, block by block."""
        asked = [*self.probabilities, self.confidence, self.label, self.predicted, self.correct]
        wanted = list(dict.fromkeys(name for name in asked if name is not None))
        numbers = [*self.probabilities, *([self.confidence] if self.confidence else [])]
        for block in self.table.blocks(wanted, numbers if self.table.path.suffix.lower() != ".parquet" else []):
            yield self._rows(block)

    @property
    def notes(self) -> list[str]:
        """What was taken for what, where that is not plain."""
        if self.confidence and self.label and not (self.predicted or self.correct):
            return [f"Column {self.label!r} was read as 1 = right, 0 = wrong, since nothing says what was predicted."]
        return []

    def _rows(self, block: TableBlock) -> Rows:
        where = f"{self.table.path}, rows from {block.start} on"
        label, predicted, correct = (
            None if name is None else block.columns[name] for name in (self.label, self.predicted, self.correct)
        )
        if self.probabilities:
            matrix = self._matrix(block)
            index, confidence = matrix.argmax(1), _unit(where, matrix.max(1))
            predicted = np.asarray(self.classes, object)[index]
        else:
            assert self.confidence is not None
            confidence = _unit(where, _floats(where, self.confidence, block.columns[self.confidence]))
        if correct is not None:
            right = _zero_one(where, str(self.correct), correct)
        elif label is None:
            right = None
        elif self.probabilities:
            right = index == self._class_index(label)
        elif predicted is None:
            right = _zero_one(where, str(self.label), label, "; name the column of what was predicted")
            label = None
        else:
            right = self._equal(label, predicted, where)
        return Rows(block.start, confidence, right, predicted, label, block.done)

    def _equal(self, label: NDArray[Any], predicted: NDArray[Any], where: str) -> NDArray[np.bool_]:
        if (label.dtype.kind in "OUS") != (predicted.dtype.kind in "OUS"):
            raise ValueError(f"{where}: {self.label!r} and {self.predicted!r} are text and numbers; write both alike")
        return np.asarray(label == predicted, bool)

    def _matrix(self, block: TableBlock) -> NDArray[Any]:
        parts = [block.columns[name] for name in self.probabilities]
        matrix = parts[0] if parts[0].ndim == 2 else np.stack(parts, axis=1)
        if matrix.dtype.kind != "f":
            raise ValueError(f"{self.table.path} must hold fractions in {self.probabilities[0]!r}, not {matrix.dtype}")
        checks.measured.unit_interval("probabilities", matrix.ravel())
        off = np.abs(matrix.sum(1) - 1)
        if (off > 1e-3).any():
            row = int(off.argmax())
            raise ValueError(
                f"{self.table.path} has probabilities that do not sum to 1: in row {block.start + row} they sum to"
                f" {float(matrix[row].sum()):.4g}; write the softmax of all classes"
            )
        return matrix

    def _class_index(self, label: NDArray[Any]) -> NDArray[np.int64]:
        """The position of each label among the classes: by name, or where names are no numbers also by position."""
        names = {name: index for index, name in enumerate(self.classes)}
        distinct, inverse = np.unique(label.astype(str) if label.dtype.kind in "OUS" else label, return_inverse=True)
        found = []
        for value in distinct.tolist():
            text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
            by_position = int(text) if text.isdigit() and not any(name.isdigit() for name in names) else None
            index = names.get(text, by_position)
            if index is None or index >= len(names):
                shown = ", ".join(self.classes[:6]) + (", ..." if len(self.classes) > 6 else "")
                raise ValueError(f"{self.table.path} has the label {text!r}, but the classes are {shown}")
            found.append(index)
        return np.asarray(found, np.int64)[inverse]


def _missing(table: Table, name: str) -> str:
    near = difflib.get_close_matches(name, table.names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    shown = ", ".join(table.names[:20]) + (", ..." if len(table.names) > 20 else "")
    return f"{table.path} has no column {name!r}; it has {shown}{hint}"


def _checked(table: Table, chosen: Mapping[str, str], roles: tuple[str, ...]) -> dict[str, str]:
    """The choices that matter for this table; probabilities may be named by a column or by a prefix of several."""
    for role, name in chosen.items():
        if role not in ROLES:
            raise ValueError(f"columns names the role {role!r}; there are {', '.join(ROLES)}")
        several = role == "probabilities" and sum(one.startswith(name) for one in table.names) > 1
        if role in roles and name not in table.names and not several:
            raise ValueError(_missing(table, name))
    return {role: name for role, name in chosen.items() if role in roles}


def _probability_columns(table: Table, name: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of probabilities and the names of their classes; a single column holds the whole vector."""
    if name in table.names:
        return (name,), _vector_classes(table, name)
    if name is not None:
        matches = [(one, one[len(name) :]) for one in table.names if one.startswith(name)]
    else:
        matches = [(one, found[1] or found[2]) for one in table.names if (found := _ONE_EACH.match(one))]
    return (tuple(n for n, _ in matches), tuple(c for _, c in matches)) if len(matches) > 1 else ((), ())


def _vector_classes(table: Table, name: str) -> tuple[str, ...]:
    first = next(iter(table.blocks([name], [])), None)
    if first is None or first.columns[name].ndim != 2:
        raise ValueError(f"{table.path} must hold a list for every row in {name!r}, one number for each class")
    return tuple(map(str, range(first.columns[name].shape[1])))


def _floats(where: str, name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise ValueError(f"{where}: column {name!r} must hold numbers, not {values.dtype}")
    return values if values.dtype.kind == "f" else values.astype(np.float64)


def _unit(where: str, values: NDArray[Any]) -> NDArray[Any]:
    try:
        checks.measured.unit_interval("confidence", values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return values


def _zero_one(where: str, name: str, values: NDArray[Any], hint: str = "") -> NDArray[np.bool_]:
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(f"{where}: column {name!r} must hold only 0 (wrong) and 1 (right){hint}")
    return values.astype(bool)
