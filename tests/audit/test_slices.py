"""Slices: what is planted is found, chance is not, and the tests are those of SciPy."""

import numpy as np
import pytest
import torch

from calibrant.audit.slices import holm, slices


def data(n: int = 2000, seed: int = 0) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    confidence = rng.beta(8, 2, n)
    return rng, confidence, rng.random(n) < confidence


def test_a_planted_slice_comes_first_and_nothing_else_stands_out() -> None:
    rng, confidence, correct = data()
    camera, age = rng.choice(["a", "b", "c"], 2000), rng.normal(40, 10, 2000)
    correct = correct & ~((camera == "b") & (rng.random(2000) < 0.3))
    table = slices({"camera": camera, "age": age}, confidence, correct)
    worst = table.slices[0]
    assert (worst.column, worst.value, worst.stands_out) == ("camera", "b", True)
    assert worst.adjusted < 1e-6
    assert worst.accuracy.estimate == pytest.approx(correct[camera == "b"].mean())
    assert worst.gap.estimate == pytest.approx((confidence - correct)[camera == "b"].mean())
    assert worst.shortfall == pytest.approx(correct[camera != "b"].mean() - correct[camera == "b"].mean())
    assert [one.value for one in table.slices if one.stands_out] == ["b"]
    assert table.sentence.startswith("In 1 of 8 slices it is worse than elsewhere: camera = b (")


def test_of_many_slices_without_difference_none_stands_out_in_95_of_100_tables() -> None:
    found = 0
    for seed in range(40):
        rng, confidence, correct = data(600, seed)
        table = slices({str(k): rng.integers(5, size=600) for k in range(4)}, confidence, correct)
        found += any(one.stands_out for one in table.slices)
        assert len(table.slices) == 20
    assert found <= 5
    rng, confidence, correct = data(600, 1)
    quiet = slices({"x": rng.integers(5, size=600)}, confidence, correct)
    assert quiet.sentence == "No slice stands out: 5 were compared, and chance explains their differences."


def test_the_test_of_accuracy_is_fisher_s() -> None:
    from scipy.stats import fisher_exact

    group, correct = np.repeat(["x", "y"], 50), np.r_[np.repeat([1, 0], [30, 20]), np.repeat([1, 0], [40, 10])]
    confidence = np.where(group == "x", 0.6, 0.8)
    (worst, _) = slices({"g": group}, confidence, correct).slices
    expected = fisher_exact([[30, 20], [40, 10]], alternative="less").pvalue
    assert (worst.value, worst.p_value) == ("x", pytest.approx(2 * expected))


def test_overconfidence_stands_out_where_accuracy_does_not() -> None:
    rng, confidence, correct = data(4000)
    group = rng.choice(["plain", "sure"], 4000, p=[0.8, 0.2])
    sure = np.where(group == "sure", np.minimum(confidence + 0.15, 1), confidence)
    table = slices({"group": group}, sure, correct)
    assert [one.value for one in table.slices if one.stands_out] == ["sure"]
    assert table.slices[0].gap.low > 0.05


def test_holm_is_that_of_its_definition() -> None:
    p = [0.001, 0.2, 0.01, 0.04]
    assert holm(p) == pytest.approx([0.004, 0.2, 0.03, 0.08])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_numbers_are_grouped_by_quantiles_and_missing_values_are_a_slice() -> None:
    rng, confidence, correct = data(1000)
    size = rng.random(1000)
    size[:100] = np.nan
    table = slices({"size": size, "side": torch.arange(1000) % 2}, confidence, correct)
    counts = {one.value: one.count for one in table.slices if one.column == "size"}
    assert len(counts) == 6
    assert counts["(missing)"] == 100
    assert {one.value for one in table.slices if one.column == "side"} == {"0", "1"}
    assert sum(counts.values()) == 1000
    assert max(counts.values()) <= 181


def test_groups_of_numbers_are_called_by_what_they_hold() -> None:
    _, confidence, correct = data(1000)
    age, day = np.arange(1000) % 50 + 18, 20260101 + np.arange(1000) % 20
    share = (np.arange(1000) % 40) / 40
    table = slices({"age": age, "day": day, "share": share}, confidence, correct)
    names = {column: sorted(one.value for one in table.slices if one.column == column) for column in ("age", "day")}
    assert names["age"] == ["18 to 27", "28 to 37", "38 to 47", "48 to 57", "58 to 67"]
    assert names["day"][:2] == ["20260101 to 20260104", "20260105 to 20260108"]
    first = next(one for one in table.slices if one.value == "0 to 0.175")
    assert first.count == int((share <= 0.175).sum())


def test_small_slices_are_left_out_and_counted() -> None:
    _, confidence, correct = data(100)
    table = slices({"id": [f"row {i}" for i in range(100)], "same": ["x"] * 100}, confidence, correct)
    assert table.slices == ()
    assert table.small == 100
    assert table.sentence.startswith("There is no slice of at least 30 rows")
    with pytest.raises(ValueError, match="column 'x' has shape"):
        slices({"x": [1]}, confidence, correct)
    assert {"column", "value", "accuracy_low", "adjusted"} <= set(
        slices({"half": np.arange(100) % 2}, confidence, correct).records()[0]
    )
