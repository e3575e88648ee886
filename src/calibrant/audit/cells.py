"""Any number of rows in bounded memory: as they are while there are few, summed up in narrow cells after that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.audit.class_scores import Losses, losses_of
from calibrant.audit.columns import Rows
from calibrant.metrics.bins import bin_edges, bin_index
from calibrant.metrics.functional import Array
from calibrant.predictions import Predictions

EXACT_ROWS = 20_000
CELLS = 2**14
_REACH = 20.0


class Accumulator:
    """Collects rows; `outcome()` is what they say.

    Up to 20,000 rows are kept as they are, with detectors' scores. More are summed up, without these, in 16,384 cells
    of equal width in the logit of the confidence, cut at the edges of the bins: narrow where confidences crowd, towards
    0 and 1. Accuracy, ECE, reliability diagram and confidence histograms stay exact, because a cell keeps its counts,
    its sum of confidences and its bin; measures of the order of inputs (AUROC, AURC, coverage) treat the rows of a cell
    as tied.
    """

    def __init__(self, bins: int = 15) -> None:
        self.bins, self.rows = bins, 0
        self._kept: list[tuple[NDArray[Any], NDArray[np.bool_] | None]] = []
        self._losses: list[Array] = []
        self._scores: list[dict[str, NDArray[Any]]] = []
        self._sums: Array | None = None
        self._labelled = False

    @property
    def exact(self) -> bool:
        """Whether every row is still kept as it was."""
        return self._sums is None

    def add(self, rows: Rows) -> None:
        """Take in some rows."""
        self.rows += len(rows.confidence)
        self._labelled = rows.correct is not None
        self._kept.append((rows.confidence, rows.correct))
        if rows.correct is not None:
            self._losses.append(losses_of(rows))
        self._scores.append(rows.scores)
        if self.rows > EXACT_ROWS:
            for place, (confidence, correct) in enumerate(self._kept):
                self._fold(confidence, correct, self._losses[place] if self._losses else None)
            self._kept.clear()
            self._losses.clear()
            self._scores.clear()

    def losses(self) -> Losses:
        """What each labeled row, or all rows of each cell, lost by the proper scores."""
        if self._sums is None:
            values = np.concatenate(self._losses)
            return Losses(np.ones(len(values)), values, values**2)
        filled = self._sums[0] > 0
        sums = self._sums[:, filled]
        return Losses(sums[0], sums[3:5].T, sums[5:7].T, self._means()[filled])

    def outcome(self) -> Predictions:
        """Rows, or cells that each stand for `count` rows; all labels are 1, and `predicted` is 1 for right answers."""
        if self._sums is None:
            confidence = np.concatenate([part for part, _ in self._kept])
            right = np.concatenate([c for _, c in self._kept if c is not None]) if self._labelled else None
            scores = {name: np.concatenate([part[name] for part in self._scores]) for name in self._scores[0]}
            return _outcome(confidence, right, None, scores)
        mean = self._means()
        if not self._labelled:
            filled = self._sums[0] > 0
            return _outcome(mean[filled], None, self._sums[0][filled])
        count = np.stack([self._sums[0] - self._sums[2], self._sums[2]])
        right, cell = np.nonzero(count)
        return _outcome(mean[cell], right.astype(bool), count[right, cell])

    def _fold(self, confidence: NDArray[Any], correct: NDArray[np.bool_] | None, losses: Array | None) -> None:
        if self._sums is None:
            self._sums = np.zeros((7, CELLS + self.bins))
            self._bin = np.zeros(CELLS + self.bins, np.int64)
        index = bin_index(confidence, self.bins)
        value = confidence.astype(np.float64)
        with np.errstate(divide="ignore"):
            logit = np.clip(np.log(value) - np.log1p(-value), -_REACH, _REACH)
        # both terms rise with the confidence, so their sum tells cells apart, also where a bin's edge cuts one in two
        cell = np.minimum((logit + _REACH) * (CELLS / (2 * _REACH)), CELLS - 1).astype(np.int64) + index
        size = self._sums.shape[1]
        self._bin[cell] = index
        self._sums[0] += np.bincount(cell, minlength=size)
        self._sums[1] += np.bincount(cell, value, minlength=size)
        if correct is not None:
            self._sums[2] += np.bincount(cell, correct, minlength=size)
        for row, value in enumerate(() if losses is None else (*losses.T, *losses.T**2)):
            self._sums[3 + row] += np.bincount(cell, value, minlength=size)

    def _means(self) -> Array:
        """The mean confidence of each cell, kept inside its bin: edges in float32 are not quite those in float64."""
        assert self._sums is not None
        edges = bin_edges(self.bins)
        low, high = edges[self._bin], edges[self._bin + 1]
        mean = self._sums[1] / np.maximum(self._sums[0], 1)
        inside: Array = np.clip(mean, np.where(low > 0, np.nextafter(low, 1), 0), high)
        return inside


def _outcome(
    confidence: NDArray[Any],
    right: NDArray[np.bool_] | None,
    count: Array | None,
    scores: dict[str, NDArray[Any]] | None = None,
) -> Predictions:
    predicted = np.ones(len(confidence), np.int64) if right is None else right.astype(np.int64)
    label = None if right is None else np.ones(len(confidence), np.int64)
    whole = None if count is None else np.rint(count).astype(np.int64)
    return Predictions(confidence, predicted, label, count=whole, scores=scores or {}).numpy()
