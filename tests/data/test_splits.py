"""Splits: no example is ever in two parts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.data import CIFAR_SPLIT, OUTLIER_SPLIT, ArrayData, DataError, Splits, split_indices
from calibrant.files import RunError


@settings(deadline=None, max_examples=60)
@given(n=st.integers(3, 300), seed=st.integers(0, 2**32), data=st.data())
def test_drawn_parts_are_disjoint_and_of_the_sizes_asked_for(n: int, seed: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(1, n - 2))
    second = data.draw(st.integers(1, n - first - 1))
    parts = Splits.draw(n, {"train": first, "validation": second, "calibration": None}, seed).parts
    assert [len(part) for part in parts.values()] == [first, second, n - first - second]
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(n))


def test_the_splits_of_the_paper() -> None:
    train, validation = split_indices(50_000, CIFAR_SPLIT, seed=3).values()
    assert (len(train), len(validation), len(np.union1d(train, validation))) == (45_000, 5_000, 50_000)
    outliers = split_indices(10_000, OUTLIER_SPLIT, seed=3)
    assert {name: len(part) for name, part in outliers.items()} == {"uncertainty": 6_000, "ood_test": 4_000}


def test_a_seed_decides_the_split() -> None:
    one, same, other = (split_indices(100, {"a": 50}, seed)["a"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert len(split_indices(100, {"a": 0.25, "b": 0.5})["b"]) == 50


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000))
def test_stratified_parts_hold_the_classes_in_proportion(seed: int) -> None:
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    parts = split_indices(100, {"train": 70, "validation": 30}, seed, labels)
    counts = torch.bincount(labels[parts["validation"]], minlength=3)
    assert (counts - torch.tensor([18, 9, 3])).abs().max() <= 1
    assert sorted(torch.cat(list(parts.values())).tolist()) == list(range(100))


def test_a_split_of_more_examples_than_any_data_is_refused() -> None:
    with pytest.raises(DataError, match="larger than any data set"):
        Splits(10**30, {"train": [2**63]})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"train": [0, 1, 2], "test": [2, 3]}, "index 2 is both in part 'train' and in part 'test'"),
        ({"train": [0, 1, 1]}, "index 1 is both in part 'train' and in part 'train'"),
        ({"train": [0, 10]}, "index 10, but the data has 10"),
        ({"train": [-1]}, "index -1"),
        ({"train": []}, "empty"),
        ({"train": [0.5]}, "integer indices"),
        ({"train": [True]}, "integer indices"),
        ({"train": "012"}, "integer indices"),
        ({}, "at least one part"),
    ],
)
def test_leakage_is_refused_in_construction_and_in_files(
    parts: dict[str, list[int]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        Splits(10, parts)  # type: ignore[arg-type]
    file = tmp_path / "splits.json"
    file.write_text(json.dumps({"size": 10, "seed": 0, "parts": parts}))
    with pytest.raises(DataError, match=message):
        Splits.load(file)


def test_saved_and_loaded_alike(tmp_path: Path) -> None:
    splits = Splits.draw(50, {"train": 30, "validation": 10, "calibration": 5}, seed=7)
    splits.save(tmp_path / "splits.json")
    again = Splits.load(tmp_path / "splits.json")
    assert (again.size, again.seed, list(again.parts)) == (50, 7, ["train", "validation", "calibration"])
    assert all(torch.equal(again[name], splits[name]) for name in splits.parts)
    assert [path.name for path in tmp_path.iterdir()] == ["splits.json"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = Splits.draw(50, {"train": 30}, seed=7)
    splits.save(tmp_path / "splits.json")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="no space is left"):
        Splits.draw(50, {"train": 30}, seed=8).save(tmp_path / "splits.json")
    assert [path.name for path in tmp_path.iterdir()] == ["splits.json"]
    assert Splits.load(tmp_path / "splits.json").seed == 7


def test_the_published_form_of_a_split(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps({"ood_test": [4, 0], "uncertainty_train": [3, 1, 2]}))
    splits = Splits.load(tmp_path / "split.json")
    data = ArrayData(torch.arange(5.0)[:, None])
    parts = splits.apply(data)
    assert parts["uncertainty"].inputs.flatten().tolist() == [3, 1, 2]
    assert parts["ood_test"].inputs.flatten().tolist() == [4, 0]
    (tmp_path / "split.json").write_text(json.dumps({"ood_test": [4, 0], "uncertainty_train": [3, 1, 4]}))
    with pytest.raises(DataError, match="index 4 is both"):
        Splits.load(tmp_path / "split.json")


def test_a_split_fits_its_data_only() -> None:
    splits = Splits.draw(10, {"train": 5}, seed=0)
    with pytest.raises(DataError, match="split is of 10 examples, but the data has 11"):
        splits.apply(ArrayData(torch.zeros(11, 1)))
    with pytest.raises(DataError, match="no part 'test'"):
        splits["test"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"a": 8, "b": 3}, "10 examples cannot be split into a 8, b 3"),
        ({"a": 10, "b": None}, "cannot be split"),
        ({"a": None, "b": None}, "only one part"),
        ({"a": 1.5}, "fraction between 0 and 1"),
        ({"a": 0}, "every part needs one"),
    ],
)
def test_sizes_that_do_not_fit(sizes: dict[str, float | None], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_indices(10, sizes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "JSON object"),
        ('{"parts": {"a": [0]}}', "integer size"),
        ('{"a": 3}', "integer indices"),
    ],
)
def test_damaged_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "splits.json").write_text(text)
    with pytest.raises(DataError, match=message):
        Splits.load(tmp_path / "splits.json")
    with pytest.raises(DataError, match="cannot be read"):
        Splits.load(tmp_path / "none.json")
