"""What to do: what each remedy would gain on the table at hand, by cross-fitting, with paired intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from calibrant import InputError
from calibrant.audit.advice import Advice, Findings, advice_of, code_of, limits_of, only
from calibrant.audit.array_table import as_array
from calibrant.audit.forecasts import softmax, two_columns
from calibrant.audit.outliers_answered import SHARES, measure_outliers, recalibrated_record, recalibration_of
from calibrant.audit.paired import Paired
from calibrant.audit.recalibrated import LOSSES, UNCHANGED, LossParts, Recalibrations, recalibrate
from calibrant.audit.rejected import COVERAGES, EVERYTHING, TOLERATED, measure_thresholds
from calibrant.audit.sample import Sample
from calibrant.calibrators.choosing import cross_fitted, fold_numbers
from calibrant.calibrators.fits import FITS
from calibrant.calibrators.saved import write_state
from calibrant.evaluation import Resampling
from calibrant.metrics import Interval
from calibrant.predictions import Predictions

FOLDS = 5
FEWEST_ROWS = 20


@dataclass(frozen=True)
class RemedyRow:
    """One measure before and after one remedy; `difference` is after minus before, with its paired interval.

    Of ECEs no interval of a difference is honest: its limits are NaN, and `intervals` are those of the ECE before and
    after. Where too few answers are wrong to tell what recalibration gains, differences have no limits either.

    `remedy` is "temperature", "isotonic", "vector" or "confidence threshold" and, about the outliers called `ood`,
    "recalibrated confidence threshold", "score threshold" or "trust". The first of these three is compared with a
    threshold on the table's own confidence, the other two with the first, all at 80 % ID coverage.
    """

    remedy: str
    measure: str
    before: float
    after: float
    difference: Interval
    better: Literal["lower", "higher"] = "lower"
    ood: str | None = None
    intervals: tuple[Interval, Interval] | None = None

    @property
    def helps(self) -> bool:
        """Whether the whole interval of the difference is on the better side of 0, or the two intervals are apart."""
        if self.intervals is not None:
            return self.intervals[1].high < self.intervals[0].low
        return self.difference.high < 0 if self.better == "lower" else self.difference.low > 0

    def flat(self) -> dict[str, Any]:
        """As plain values, for JSON and frames."""
        own = {"remedy": self.remedy, "ood": self.ood, "measure": self.measure, "before": self.before}
        change = {"after": self.after, "difference": self.difference.estimate}
        ends = {"low": self.difference.low, "high": self.difference.high}
        for name, one in zip(("before", "after"), self.intervals or ()):
            ends |= {f"{name}_low": one.low, f"{name}_high": one.high}
        limits = {name: None if math.isnan(value) else value for name, value in ends.items()}
        return {**own, **change, **limits, "better": self.better}


@dataclass(frozen=True, eq=False)
class Remedies:
    """What remedies would gain on a table of `total` rows, measured on a sample of `size` of them.

    Attributes:
        rows: every remedy and measure.
        parts: log loss and Brier score, each split into calibration and refinement.
        best: the calibrator to take; None where none gains measurably.
        sentences: what this means, and what cannot be told.
        code: the command and the lines of Python that apply the best calibrator and, where something beats a threshold
            on the confidence in rejecting outliers, that.
        size: rows of the sample.
        total: rows of the table.
        limits: those of the sentences that say what cannot be told.
        outliers: how many of each OOD table were drawn, by its name.
        advice: the sentences but for the limits: what comes first, what else gains, what else was measured.
    """

    rows: tuple[RemedyRow, ...]
    parts: tuple[LossParts, ...]
    best: str | None
    sentences: tuple[str, ...]
    code: tuple[str, ...]
    size: int
    total: int
    _sample: Sample = field(repr=False)
    limits: tuple[str, ...] = ()
    outliers: Mapping[str, int] = field(default_factory=dict)
    advice: Advice = field(default_factory=Advice)
    _far: Mapping[str, Sample] = field(default_factory=dict, repr=False)

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        own = {"best": self.best, "sentences": list(self.sentences), "code": list(self.code), "size": self.size}
        sizes = {"total": self.total, "outliers": dict(self.outliers)}
        parts = [part.flat() for part in self.parts]
        return {**own, **sizes, "parts": parts, "rows": [row.flat() for row in self.rows]}

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("a frame needs pandas: pip install pandas") from None
        return pd.DataFrame([row.flat() for row in self.rows])

    def record(
        self, *, probabilities: Any = None, logits: Any = None, confidence: Any = None, scores: Any = None
    ) -> Predictions:
        """Predictions on new inputs with the confidence recalibrated, as outliers are rejected by, and outlier scores.

        Given are what the table had: `probabilities` or `logits` (N, C), or (N,) of the positive one of two classes, or
        a `confidence` (N,); and `scores`, its columns of detectors by name.
        """
        if logits is not None:
            z = two_columns(as_array("logits", logits).astype(np.float64), 0.0)
            probabilities = softmax(z)
        else:
            z = None
        if probabilities is not None:
            p = as_array("probabilities", probabilities).astype(np.float64)
            probabilities = np.stack([1 - p, p], 1) if p.ndim == 1 else p
            confidence = probabilities.max(1)
        elif confidence is None:
            raise InputError("give probabilities, logits or a confidence")
        level = as_array("confidence", confidence).astype(np.float64)
        columns = {name: as_array(name, value).astype(np.float64) for name, value in (scores or {}).items()}
        return self._record(Sample(len(level), level, probabilities=probabilities, logits=z, scores=columns))

    def records(self, ood: str) -> tuple[Predictions, Predictions]:
        """The same of the rows that were drawn from the labeled table, and from the OOD table of that name."""
        if ood not in self._far:
            raise InputError(f"there are no outliers called {ood!r}; there are {', '.join(self._far) or 'none'}")
        far = self._far[ood]
        inside = (
            self._sample if far.probabilities is not None else replace(self._sample, probabilities=None, logits=None)
        )
        return self._record(inside), self._record(far)

    def _record(self, sample: Sample) -> Predictions:
        import torch

        by_class = self._sample.by_class and sample.probabilities is not None
        confidence, scores = recalibrated_record(self._sample, sample, by_class=by_class)
        predicted = sample.probabilities.argmax(1) if sample.probabilities is not None else np.zeros(len(sample), int)
        columns = {name: torch.from_numpy(values) for name, values in scores.items()}
        return Predictions(torch.from_numpy(confidence), torch.from_numpy(predicted), scores=columns)

    def write_calibrator(self, path: str | Path) -> Path:
        """Fit the best calibrator to the whole sample and write it to the JSON file `path`.

        `calibrant.calibrators.load(path)` reads it. Where no calibrator gains measurably, there is nothing to write,
        and a ValueError says so.
        """
        if self.best is None:
            raise InputError(f"{path} was not written: no calibrator gains measurably on these {self.size} rows")
        state = FITS[self.best].fit(self._sample.z, self._sample.labels)
        entry = {"name": self.best, "module": f"calibrant.calibrators.{self.best}", "config": {}}
        of = "probabilities" if self._sample.by_class else "confidence"
        classes = self._sample.z.shape[1]
        return write_state(path, entry, {**state, "classes": classes}, of=of, rows=self.size)


def measure_remedies(
    sample: Sample,
    far: Mapping[str, Sample] | None = None,
    *,
    resampling: Resampling | None = None,
    bins: int = 15,
    folds: int = FOLDS,
    command: str | None = "calibrant audit predictions.csv",
    call: str = 'audit("predictions.csv", "outliers.csv")',
    given: str | None = None,
) -> Remedies:
    """Measure by cross-fitting what each remedy would gain.

    Args:
        sample: labeled rows of a table.
        far: samples of OOD tables by name; with them, what rejects outliers is measured too.
        resampling: how intervals are made. They are bootstraps of the rows, with the cross-fitted values held fixed.
        bins: of the ECE.
        folds: of the cross-fitting.
        command: the audit as a command line, for `code`; None: it was called from Python.
        call: the same in Python, for what the command line cannot do.
        given: what the sample was made of: "score" or "log odds" of one of two classes, or by default what it holds.
    """
    how = resampling or Resampling()
    if len(sample) < FEWEST_ROWS:
        few = f"{only(len(sample))}, too few to tell what a remedy would gain: {FEWEST_ROWS} are needed."
        return Remedies((), (), None, (few,), (), len(sample), sample.total, sample, (few,))
    sample = sample if sample.by_class else replace(sample, probabilities=None, logits=None)
    changed = recalibrate(sample, how, folds=folds, bins=bins)
    rows = _recalibration_rows(changed)
    best = changed.best if _gains(rows, changed.best) else None
    kept = measure_thresholds(sample, how, folds=folds)
    rows += _threshold_rows(kept)
    parts = tuple(changed.parts(measure) for measure in LOSSES)
    found = Findings(sample, best, changed, parts, kept, {}, far or {})
    for name, other in (far or {}).items():
        found.outliers[name] = _measure_far(sample, other, changed, how, folds)
        rows += _outlier_rows(name, found.outliers[name][0])
    limits, advice = tuple(limits_of(found)), advice_of(found)
    told = (*advice.first, *advice.more, *advice.rest, *limits)
    usual = "probabilities" if sample.by_class else "confidence"
    given = given or ("logits" if sample.by_class and sample.logits is not None else usual)
    code = tuple(code_of(found, command, call, given))
    return Remedies(
        tuple(rows), parts, best, told, code, len(sample), sample.total, sample, limits,
        {name: len(other) for name, other in found.far.items()}, advice, found.far,
    )  # fmt: skip


def _gains(rows: list[RemedyRow], name: str) -> bool:
    return any(row.helps for row in rows if row.remedy == name and row.measure == "log loss")


def _recalibration_rows(changed: Recalibrations) -> list[RemedyRow]:
    rows = []
    for name in changed.probabilities:
        if name != UNCHANGED:
            rows += [_row(changed, name, measure) for measure in LOSSES]
            rows.append(_ece_row(name, changed.errors[UNCHANGED], changed.errors[name]))
        if name != UNCHANGED and changed.changed(name) > 0:
            rows.append(_row(changed, name, "accuracy", better="higher"))
    return rows


def _row(changed: Recalibrations, name: str, measure: str, better: Literal["lower", "higher"] = "lower") -> RemedyRow:
    before, after = f"{UNCHANGED}: {measure}", f"{name}: {measure}"
    values = changed.measured.values
    return RemedyRow(name, measure, values[before], values[after], changed.difference(after, before), better)


def _ece_row(name: str, before: Interval, after: Interval) -> RemedyRow:
    change = Interval(after.estimate - before.estimate, math.nan, math.nan)
    return RemedyRow(name, "ECE", before.estimate, after.estimate, change, intervals=(before, after))


def _threshold_rows(found: Paired) -> list[RemedyRow]:
    rows = []
    for name in (f"error at {100 * goal:.0f} % coverage" for goal in COVERAGES):
        change = found.difference(name, EVERYTHING)
        rows.append(RemedyRow("confidence threshold", name, found.values[EVERYTHING], found.values[name], change))
    for name in (f"coverage at {100 * goal:.0f} % error" for goal in TOLERATED):
        if name in found.values:
            value = found.interval(name)
            change = Interval(value.estimate - 1, value.low - 1, value.high - 1)
            rows.append(RemedyRow("confidence threshold", name, 1.0, value.estimate, change, "higher"))
    return rows


def _measure_far(
    sample: Sample, far: Sample, changed: Recalibrations, how: Resampling, folds: int
) -> tuple[Paired, str, tuple[str, ...]]:
    """Beside the confidence after temperature scaling or, of a confidence only, after isotonic regression."""
    both = sample.by_class and far.probabilities is not None
    (sample, name), (far, _) = (recalibration_of(part, by_class=both) for part in (sample, far))
    z, y = sample.z, sample.labels
    fold = fold_numbers(len(z), folds, how.seed)
    inside = changed.probabilities[name] if both else cross_fitted(FITS[name], z, y, fold)
    pair = inside, FITS[name].probabilities(far.z, FITS[name].fit(z, y))
    own, theirs = (np.minimum(p.max(1) if both else p[:, 1], 1) for p in pair)
    return measure_outliers(sample, far, (own, theirs), how)


def _outlier_rows(ood: str, found: Paired) -> list[RemedyRow]:
    """A threshold on the recalibrated confidence beside one on the table's, and all else beside that."""
    rows = []
    systems = (
        ("recalibrated", "confidence", "recalibrated confidence threshold"),
        ("score", "recalibrated", "score threshold"),
        ("trust", "recalibrated", "trust"),
    )
    measures = [f"wrong answers, {100 * share:.0f} % outliers" for share in SHARES] + ["outliers answered"]
    for system, other, remedy in systems:
        for measure in measures:
            if f"{system}: {measure}" in found.values:
                after, before = f"{system}: {measure}", f"{other}: {measure}"
                change = found.difference(after, before)
                rows.append(RemedyRow(remedy, measure, found.values[before], found.values[after], change, "lower", ood))
    return rows
