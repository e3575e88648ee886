"""Finding the columns: as chosen, else by usual names and a look at the first rows, where that leaves no doubt."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from calibrant import InputError
from calibrant.audit.columns import MOST_NAMES, TWINS, Layout, class_of, class_text, distinct_texts
from calibrant.audit.forecasts import (
    KINDS,
    MOST_ROUNDING,
    RANGE,
    ROUNDING,
    Forecast,
    ForecastKind,
    from_percent_signs,
    rounding,
)
from calibrant.audit.roles import EACH, ROLES, Wishes, check_wishes, lacking, listed
from calibrant.audit.tables import Table, missing

MOST_TRIED = 100
"""Of more columns it is not tried which of them sum to 1."""
FEWEST_ONE_SIDED = 20
"""The number of rows from which it is doubtful that a score prefers the same class in each."""
_ODDS = re.compile(r"decision|margin|odds")


def find_layout(table: Table, wishes: Wishes, *, like: Layout | None = None) -> Layout:
    """The columns of a labeled table, or, `like` one, of OOD data, for which only what the system said matters."""
    roles = tuple(ROLES) if like is None else KINDS
    check_wishes(table, wishes, roles)
    search = ColumnSearch(table, wishes, roles)
    if like is not None and set(like.forecast.columns) <= set(table.names):
        return Layout(table, like.forecast, detectors=wishes.detectors)
    forecast = search.forecast()
    if like is not None:
        return Layout(table, forecast, detectors=wishes.detectors)
    taken = forecast.columns
    label, predicted, correct = (search.column(role, taken) for role in ("label", "predicted", "correct"))
    if label is None and correct is None:
        raise InputError(f"{lacking(table, 'label')}; name it with --label, or give a column 'correct' of 0 and 1")
    count = wishes.classes if isinstance(wishes.classes, int) else len(wishes.classes) or None
    if forecast.kind == "confidence" and correct is None and predicted is None:
        raise InputError(_nothing_predicted(table, forecast.columns[0], str(label), search.labels()))
    notes = search.notes(forecast)
    return Layout(table, forecast, label, predicted, correct, wishes.detectors, count, notes, wishes.slices)


class ColumnSearch:
    """A look at the names and the first rows of a table."""

    def __init__(self, table: Table, wishes: Wishes, roles: tuple[str, ...]) -> None:
        self.table, self.wishes, self.roles = table, wishes, roles
        percent, head = wishes.percent, table.head(table.names)
        self.sample = {name: from_percent_signs(values, percent=percent) for name, values in head.items()}
        self.chosen = {role: name for role, name in wishes.columns.items() if role in roles}
        self.said: list[str] = []

    def usual(self, role: str) -> list[str]:
        """The columns with usual names for `role`, the likeliest first."""
        names = self.table.names
        if {class_of(name) for name in names} >= {"True", "False"}:  # of two classes, and not of what is true
            names = tuple(name for name in names if class_of(name) not in ("True", "False"))
        plain = {re.sub(r"[\s-]+", "_", name.strip().lower()): name for name in reversed(names)}
        exact = [name for name in ROLES[role] if name in names]
        return list(dict.fromkeys([*exact, *(plain[name] for name in ROLES[role] if name in plain)]))

    def column(self, role: str, taken: tuple[str, ...] = ()) -> str | None:
        """The column of `role`, chosen, or usual and not `taken` for another."""
        if role in self.chosen:
            return self.chosen[role]
        found = [name for name in self.usual(role) if name not in taken]
        if len(found) > 1:
            others = ", ".join(map(repr, found[1:]))
            self.said.append(f"Column {found[0]!r} was read as the {role}, not {others}; --{role} names another.")
        return found[0] if found else None

    def notes(self, forecast: Forecast) -> tuple[str, ...]:
        """What was taken for what."""
        if forecast.binary and forecast.kind not in self.chosen:
            what = "the log odds" if forecast.kind == "logits" else "the probability"
            said = f"Column {forecast.columns[0]!r} was read as {what} of class {forecast.classes[1]}"
            self.said.insert(0, f"{said}; --score and --positive name others.")
        return tuple(self.said)

    def forecast(self) -> Forecast:
        """How sure the system was: as chosen, else the most telling of what is found by name and is safe."""
        picked = [kind for kind in KINDS if kind in self.chosen]
        if len(picked) > 1:
            raise InputError(f"give one of {', '.join(f'--{kind}' for kind in picked)}, not several")
        if picked:
            return self._chosen(picked[0])
        found = self._matched("probabilities") or self._matched("logits") or self._named_as_classes()
        if found is not None:
            return found
        confidence = self.column("confidence")
        if confidence is not None:
            return self._made("confidence", (confidence,))
        odds = self.usual("logits")
        return self._vector("logits", odds[0]) if odds else self._score()

    def _chosen(self, kind: ForecastKind) -> Forecast:
        name = self.chosen[kind]
        if kind in ("confidence", "score"):
            return self._made(kind, (name,))
        if name in self.table.names:
            return self._vector(kind, name)
        columns = listed(self.table, name)
        classes = columns if "," in name else tuple(column.removeprefix(name) for column in columns)
        return self._made(kind, columns, classes)

    def _matched(self, kind: ForecastKind) -> Forecast | None:
        """Columns such as p_0, p_1, or one with a usual name that holds a list or a row of a matrix."""
        matches = [(one, found[1] or found[2]) for one in self.table.names if (found := EACH[kind].match(one))]
        if len(matches) > 1:
            return self._made(kind, tuple(name for name, _ in matches), tuple(text for _, text in matches))
        names = [*self.usual(kind), *(self.usual("score") if kind == "probabilities" else [])]
        for name in names:
            if name not in self.sample:
                next(self.table.blocks([name]), None)  # which says why it cannot be read
            elif self.sample[name].ndim == 2:
                return self._vector(kind, name)
        return None

    def _vector(self, kind: ForecastKind, name: str) -> Forecast:
        """One column: lists of C numbers, or one number that is about the positive class."""
        values = self.sample.get(name)
        if values is not None and values.ndim == 2 and values.shape[1] > 1:
            return self._made(kind, (name,), tuple(map(str, range(values.shape[1]))))
        if kind == "logits" or (values is not None and values.ndim == 2):
            return self._made("score" if kind == "probabilities" else kind, (name,))
        raise InputError(
            f"{self.table.where} must hold a list for every row in {name!r}, one number for each class; if it is the"
            f" probability of one class, give --score {name}; if it is that of the predicted class, --confidence {name}"
        )

    def _made(
        self, kind: ForecastKind, columns: tuple[str, ...], classes: tuple[str, ...] = (), positive: str | None = None
    ) -> Forecast:
        wished = self.wishes.classes
        if not classes and kind in ("score", "logits"):
            classes = self._two_classes(columns[0], positive)
        elif classes and not isinstance(wished, int) and wished:
            if len(wished) != len(classes):
                raise InputError(f"classes has {len(wished)} names, but {self.table.where} has {len(classes)} classes")
            classes = wished
        return Forecast(kind, columns, classes, self.wishes.percent)

    def labels(self) -> list[str]:
        """The distinct labels of the first rows, as text."""
        label = self.chosen.get("label") or next(iter(self.usual("label")), "")
        values = self.sample.get(label) if "label" in self.roles else None
        return [] if values is None or values.ndim > 1 else distinct_texts(values[~missing(values)])

    @cached_property
    def all_labels(self) -> list[str]:
        """The distinct labels of all rows, which may be sorted by them; of the first rows where there are too many."""
        first, label = self.labels(), self.chosen.get("label") or next(iter(self.usual("label")), "")
        found = set(first)
        for block in self.table.blocks([label], (), [label]) if first else ():
            found |= set(distinct_texts(block.columns[label]))
            if len(found) > MOST_NAMES:
                return first
        return sorted(found)

    def _two_classes(self, column: str, positive: str | None) -> tuple[str, str]:
        """The negative and the positive class behind one number: as told, else 1 of 0 and 1, or of -1 and 1."""
        labels, positive = self.labels(), self.wishes.positive or positive
        labels = self.all_labels if len(labels) == 1 else labels
        if positive is None and (set(labels) <= {"0", "1"} or set(labels) <= {"-1", "1"}):
            positive = "1"
        elif positive is None and set(labels) <= {"False", "True"}:
            positive = "True"
        if positive is None:
            raise InputError(
                f"{self.table.where}: {column!r} is about one of two classes, but which of {', '.join(labels[:6])}?"
                f" Name it with --positive, as in --score {column} --positive {labels[-1]}"
            )
        others = [text for text in labels if text != positive]
        return (
            others[0] if len(others) == 1 else {"1": "0", "True": "False"}.get(positive, f"not {positive}")
        ), positive

    def _named_as_classes(self) -> Forecast | None:
        """Columns that are called as the labels are, as in a frame of `predict_proba` with `classes_` as columns."""
        free = self._free()
        digits = [name for name in free if class_of(name).isdigit()]
        if len(digits) > 1 and self._whole(digits):  # labels of other names need --classes, as the refusal says
            return self._made("probabilities", tuple(digits), tuple(map(class_of, digits)))
        labels, named = self.labels(), self._called(free, self.labels())
        found = self._all_called(free, labels)
        if found is None and named and not self.usual("confidence"):
            labels, named = self.all_labels, self._called(free, self.all_labels)
            found = self._all_called(free, labels)
        if found is not None or len(named) < max(2, len(labels)) or self.usual("confidence"):
            return found
        shown = ",".join(digits if set(digits) >= set(named) else named)
        raise InputError(
            f"{self.table.where} has columns called as its labels are ({shown}), but they do not sum to 1; if they are"
            f" percentages, give --percent; if they are logits, --logits {shown}; else name the columns of all classes"
            " with --probabilities"
        )

    def _free(self) -> list[str]:
        """Columns of numbers that have no other role, in the order of the table."""
        used = {name for role in ("label", "predicted", "correct", "confidence") for name in self.usual(role)}
        used |= {*self.chosen.values(), *self.wishes.detectors, *self.wishes.slices}
        free = [n for n, v in self.sample.items() if n not in used and v.ndim == 1 and v.dtype.kind in "fiu"]
        longest = max((len(self.sample[name]) for name in free), default=0)
        return [name for name in free if len(self.sample[name]) == longest]  # arrays may be of other things

    def _called(self, free: list[str], labels: list[str]) -> list[str]:
        """Those of the columns `free` that are called as a label is, or as its twin of 0 and 1, false and true."""
        names = {*labels, *(TWINS[label] for label in labels if label in TWINS)}
        return [name for name in free if name in names or class_of(name) in names]

    def _all_called(self, free: list[str], labels: list[str]) -> Forecast | None:
        """Columns of which some are called as each of `labels`, and whose values sum to 1."""
        named = self._called(free, labels)
        for columns in (free, named) if labels and len(named) >= len(labels) else ():
            if len(columns) > 1 and self._whole(columns):
                classes = tuple(name if name in labels else class_of(name) for name in columns)
                return self._made("probabilities", tuple(columns), classes)
        return None

    def _whole(self, columns: list[str]) -> bool:
        """Whether the first values of `columns` sum to 1 in every row, but for their rounding."""
        values = np.stack([self.sample[name] for name in columns], 1) / (100.0 if self.wishes.percent else 1.0)
        off = np.abs(values.sum(1) - 1)
        return bool((off <= ROUNDING).all() or (off <= min(rounding(values), MOST_ROUNDING) + RANGE).all())

    def _score(self) -> Forecast:
        """A column with the usual name of a binary score, if its values and the labels leave no doubt."""
        table = self.table
        single = [(n, m[1] or m[2]) for n in table.names if (m := EACH["probabilities"].match(n))]
        names = [*self.usual("score"), *(name for name, text in single if text in (*self.labels(), "1"))]
        values = self.sample.get(names[0]) if names else None
        if not names or values is None or "label" not in self.roles:
            raise InputError(self._no_forecast(names))
        name, labels = names[0], self.labels()
        positive = dict(single).get(name)
        if not labels or len(labels) > 2 or not self._safe(name):
            raise InputError(self._no_forecast([name]))
        return self._made("score", (name,), positive=positive if positive in labels else None)

    def _safe(self, name: str) -> bool:
        """Whether what was predicted, if anything says so, is the class that `name`, as a score, prefers.

        Without a prediction, whether some score prefers the other class.
        """
        predicted = self.chosen.get("predicted") or next(iter(self.usual("predicted")), None)
        values, said = self.sample[name], None if predicted is None else self.sample.get(predicted)
        if self.chosen.get("correct") or self.usual("correct") or values.dtype.kind not in "fiu":
            return False
        half, positive = 50 if self.wishes.percent else 0.5, {self.wishes.positive} - {None} or {"1", "True"}
        if said is None or len(said) != len(values):
            one_sided = len(values) >= FEWEST_ONE_SIDED and bool((values >= half).all()) and len(self.labels()) == 2
            return not one_sided  # else most likely the larger of two probabilities
        likes = np.asarray([class_text(value) in positive for value in said.tolist()])
        return bool(((values == half) | ((values > half) == likes)).all())

    def _no_forecast(self, names: list[str]) -> str:
        """The sentence for a table without a confidence, with the column that is likely to be it."""
        text = lacking(self.table, "confidence")
        whole = [] if names else self._whole_run()
        if whole:
            each, text = ",".join(whole), text.split("; did you mean")[0]
            return (
                f"{text}; if {each} are the probabilities of the classes, in the order of their numbers, give"
                f" --probabilities {each} (in Python, columns={{'probabilities': {each!r}}})"
            )
        odds = [name for name in self._free() if _ODDS.search(name.lower())]
        if odds and not names:
            return (
                f"{text}; if {odds[0]!r} holds decision values or log odds of one of two classes, give --logits"
                f" {odds[0]} --positive CLASS"
            )
        likely = names[:1] or [n for n in self.sample if self._between(n)]
        if likely and "did you mean" not in text:
            one = likely[0]
            return (
                f"{text}; if {one!r} is the probability of one of two classes, give --score {one} --positive CLASS;"
                f" if it is that of the predicted class, --confidence {one} (in Python, columns={{'score': {one!r}}})"
            )
        return f"{text}; name it with --confidence, or give probabilities as columns p_0, p_1, ... or as lists"

    def _whole_run(self) -> list[str]:
        """Neighboring columns in [0, 1] whose first values sum to 1 in every row, as many as there are."""
        free = [name for name in self._free() if self._fractions(name)]
        if len(free) > MOST_TRIED:
            return []
        runs = (free[start:end] for start, _ in enumerate(free) for end in range(len(free), start + 1, -1))
        return next((run for run in runs if self._whole(run)), [])

    def _fractions(self, name: str) -> bool:
        values = self.sample[name]
        return bool(
            values.dtype.kind == "f"
            and len(values)
            and values.min() >= 0
            and values.max() <= (100 if self.wishes.percent else 1)
        )

    def _between(self, name: str) -> bool:
        """Whether the first values lie in [0, 1] or [0, 100] and are not all whole."""
        values = self.sample[name]
        if values.ndim > 1 or values.dtype.kind != "f" or not len(values) or not np.isfinite(values).all():
            return False
        return bool(values.min() >= 0 and values.max() <= 100 and (values != np.rint(values)).any())


def _nothing_predicted(table: Table, confidence: str, label: str, known: list[str]) -> str:
    zero_one = set(known) <= {"0", "1", "False", "True"}
    right = f"; if {label!r} says whether it was right, --correct {label}" if zero_one else ""
    return (
        f"{table.where} has {confidence!r} and {label!r}, but nothing says what was predicted; name the column of what"
        f" was predicted with --predicted; if {confidence!r} is the probability of one of two classes, give --score"
        f" {confidence} --positive {known[-1] if known else 'CLASS'}{right}"
    )
