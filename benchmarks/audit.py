"""The audit of a table beside reading it with pandas and measuring it with scikit-learn, each in a process of its own.

The processor time of a process counts from its start, imports included, as a user waits for them. The other process
reads the same file by `pandas.read_csv` and calls `calibration_curve` and `brier_score_loss`, which give neither
intervals nor a page. The goals are those of the product: 10^4 rows with the page in 3 s, also with the probabilities of
10 classes and a file of 10^4 outliers, and 10^6 without remedies in 8 s. Of 100 classes there is no goal.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Row

ROUNDS = 3
_AUDIT = "from calibrant.audit import audit; audit({table!r}, page={page!r}, remedies={remedies})"
_OF_CLASSES = "from calibrant.audit import audit; audit({table!r}, {far!r}, page={page!r})"
_OTHERS = """
import pandas as pd
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss
table = pd.read_csv({table!r})
calibration_curve(table.correct, table.confidence, n_bins=15)
brier_score_loss(table.correct, table.confidence)
"""


def _write(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    confidence = np.round(rng.beta(6, 1.2, rows), 6)
    correct = rng.random(rows) < np.clip(confidence - 0.05, 0, 1)
    np.savetxt(path, np.stack([confidence, correct], 1), ("%.6f", "%d"), ",", header="confidence,correct", comments="")


def _write_classes(path: Path, classes: int, *, labeled: bool) -> None:
    """Probabilities of 10^4 inputs that are too sure, or of outliers, of which it is less sure."""
    rng = np.random.default_rng(classes + labeled)
    z = (2.0 if labeled else 1.2) * rng.normal(size=(10_000, classes))
    label = (z + rng.gumbel(size=z.shape)).argmax(1)
    p = np.exp(1.5 * z)
    columns, names = [p / p.sum(1, keepdims=True)], [f"p_{c}" for c in range(classes)]
    kinds = ["%.6f"] * classes
    if labeled:
        columns, names, kinds = [*columns, label[:, None]], [*names, "label"], [*kinds, "%d"]
    np.savetxt(path, np.hstack(columns), kinds, ",", header=",".join(names), comments="")


def _seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows() -> Iterator[Row]:
    """Audit / pandas and scikit-learn, of 10^4 and of 10^6 rows; and the two limits in seconds."""
    kinds = {"audit without remedies": (False, False), "audit": (True, False), "audit with page": (True, True)}
    with tempfile.TemporaryDirectory() as folder:
        for size, name in ((10_000, "10^4"), (1_000_000, "10^6")):
            table, page = f"{folder}/{size}.csv", f"{folder}/{size}.html"
            _write(Path(table), size)
            codes = [_OTHERS.format(table=table)]
            for remedies, drawn in kinds.values():
                codes.append(_AUDIT.format(table=table, page=page if drawn else None, remedies=remedies))
            times = [[_seconds(code) for code in codes] for _ in range(ROUNDS)]
            others, *ours = (min(column) for column in zip(*times))
            took = dict(zip(kinds, ours))
            for what, seconds in took.items():
                title = f"{what} / pandas and scikit-learn, {name} rows"
                goal = 1.0 if (what, size) == ("audit", 10_000) else None
                yield Row(title, seconds / others, goal, "lower", f"{seconds:.2f} s / {others:.2f} s")
            what, most = ("audit with page", 3.0) if size == 10_000 else ("audit without remedies", 8.0)
            detail = f"{took[what]:.2f} s / {most:g} s"
            yield Row(f"{what}, {name} rows / {most:g} s", took[what] / most, 1.0, "lower", detail)
        for classes, goal in ((10, 1.0), (100, None)):
            table, far, page = (f"{folder}/{classes}{end}" for end in (".csv", "-far.csv", ".html"))
            _write_classes(Path(table), classes, labeled=True)
            _write_classes(Path(far), classes, labeled=False)
            seconds = min(_seconds(_OF_CLASSES.format(table=table, far=far, page=page)) for _ in range(ROUNDS))
            title = f"audit with page, 10^4 rows, {classes} classes and outliers / 3 s"
            yield Row(title, seconds / 3, goal, "lower", f"{seconds:.2f} s / 3 s")
