"""The sample that remedies are measured on: uniform, the same however the table is cut, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.audit import sample as module
from calibrant.audit.sample import Reservoir, Sample


def drawn(total: int, rows: int, block: int, seed: int = 0) -> tuple[Sample, int]:
    """The sample of a table whose columns all tell the row, and the most rows that were held on the way."""
    reservoir, most = Reservoir(rows, seed=seed), 0
    for start in range(0, total, block):
        row = np.arange(start, min(start + block, total))
        level = row / total
        columns = {"confidence": level, "probabilities": np.stack([1 - level, level], 1), "target": row, "done": 0.5}
        reservoir.add({**columns, "correct": row % 2 == 1, "logits": None, "scores": {"knn": row}})
        most = max(most, sum(len(part["key"]) for part in reservoir._parts))
    return reservoir.sample(), most


def test_it_does_not_depend_on_how_the_table_is_cut_and_keeps_rows_together() -> None:
    whole, _ = drawn(1000, 100, 1000)
    for block in (1, 7, 100, 999):
        other, _ = drawn(1000, 100, block)
        assert np.array_equal(other.target, whole.target)
    assert whole.total == 1000
    assert len(whole) == 100
    assert whole.target is not None
    assert whole.probabilities is not None
    assert (np.diff(whole.target) > 0).all()
    np.testing.assert_array_equal(whole.confidence, whole.target / 1000)
    np.testing.assert_array_equal(whole.probabilities[:, 1], whole.target / 1000)
    np.testing.assert_array_equal(whole.scores["knn"], whole.target)
    np.testing.assert_array_equal(whole.correct, whole.target % 2 == 1)
    assert whole.logits is None


def test_every_row_is_as_likely_as_any_other() -> None:
    counts = np.zeros(50)
    for seed in range(2000):
        found, _ = drawn(50, 10, 13, seed)
        counts[found.target] += 1
    spread = (counts - 400) ** 2 / (400 * 0.8)  # 2,000 draws of 10 of 50
    assert spread.sum() < 50 + 4 * np.sqrt(100)
    assert counts.sum() == 20_000


def test_memory_is_bounded() -> None:
    found, most = drawn(100_000, 500, 1000)
    assert len(found) == 500
    assert most <= 2 * 500 + 1000


def test_short_tables_are_kept_whole_and_many_classes_take_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = drawn(30, 100, 8)
    assert np.array_equal(found.target, np.arange(30))
    monkeypatch.setattr(module, "MOST_ENTRIES", 80)
    found, _ = drawn(300, 100, 8)
    assert len(found) == 40
    with pytest.raises(ValueError, match="the table holds no rows"):
        Reservoir().sample()


def test_what_a_calibrator_is_fitted_to() -> None:
    alone = Sample.of(confidence=[0.9, 0.4, 1.0], correct=[1, 0, 1])
    assert not alone.by_class
    np.testing.assert_array_equal(alone.labels, [1, 0, 1])
    np.testing.assert_allclose(np.exp(alone.z[:2]), [[0.1, 0.9], [0.6, 0.4]])
    assert np.isfinite(alone.z).all()
    classes = Sample.of(confidence=[0.7], correct=[0], probabilities=[[0.7, 0.2, 0.1]], target=[2])
    assert classes.by_class
    np.testing.assert_array_equal(classes.labels, [2])
    np.testing.assert_allclose(np.exp(classes.z), [[0.7, 0.2, 0.1]])
    raw = Sample.of(confidence=[0.7], probabilities=[[0.7, 0.3]], logits=[[5.0, 4.0]], target=[1], correct=[0])
    np.testing.assert_array_equal(raw.z, [[5.0, 4.0]])
    np.testing.assert_array_equal(raw.wrong, [1.0])
    with pytest.raises(ValueError, match="sample has no labels"):
        Sample.of(confidence=[0.5]).labels  # noqa: B018
