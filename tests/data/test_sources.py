"""The embedded data, and specs."""

from __future__ import annotations

import string
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from calibrant.data import (
    DataError,
    Spec,
    Splits,
    augmentation_for,
    embedded,
    has_parts,
    iter_batches,
    list_sources,
    open_source,
    outlier_parts,
)

SETS = ("embedded", "embedded:near", "embedded:far", "embedded:ood")


def rows(spec: str, split: str) -> set[bytes]:
    return {image.numpy().tobytes() for image in open_source(spec, split=split).inputs}  # type: ignore[arg-type]


def test_digits_are_all_of_scikit_learns_each_in_one_part() -> None:
    train, test = open_source("embedded"), open_source("embedded", split="test")
    assert (len(train), len(test)) == (1297, 500)
    assert train.inputs.dtype == torch.uint8
    assert train.classes == tuple(string.digits)
    pixels = np.rint(load_digits().images * 255 / 16).astype(np.uint8)
    assert rows("embedded", "all") == {image.tobytes() for image in pixels}
    assert test.labels is not None
    assert torch.bincount(test.labels).min() >= 48
    assert len(open_source("embedded", split="all")) == 1797


def test_no_image_is_in_two_parts_or_two_sets() -> None:
    parts = [rows(spec, split) for spec in SETS[:3] for split in ("train", "test")]
    assert all(not one & other for i, one in enumerate(parts) for other in parts[:i])


def test_outliers_come_from_other_letters_fonts_and_photographs() -> None:
    assert embedded.PHOTOGRAPHS["train"] != embedded.PHOTOGRAPHS["test"]
    train, test = (set(embedded.LETTERS[part].upper()) for part in ("train", "test"))
    assert not train & test
    assert not (train | test) & set("BCDGIJOQSZ")
    families = {part: {font[:4] for font in embedded.FONTS[part]} for part in ("train", "test")}
    assert not families["train"] & families["test"]


def test_outliers_look_like_the_digits_but_are_none() -> None:
    digits = open_source("embedded")
    levels = set(digits.inputs.unique().tolist())
    assert digits.labels is not None
    for spec, split in (("embedded:near", "train"), ("embedded:near", "test"), ("embedded:far", "test")):
        outliers = open_source(spec, split=split)  # type: ignore[arg-type]
        assert outliers.inputs.shape == (1000, 1, 8, 8)
        assert outliers.labels is None
        assert set(outliers.inputs.unique().tolist()) <= levels
        both = torch.cat([digits.inputs, outliers.inputs]).flatten(1).numpy() / 255
        side = np.arange(len(both)) >= len(digits)
        fitted = LogisticRegression(max_iter=2000).fit(both[::2], side[::2])
        assert fitted.score(both[1::2], side[1::2]) > 0.85
    near = open_source("embedded:near", split="test").inputs.float()
    assert abs(float(near.mean() - digits.inputs.float().mean())) < 10
    assert near[:, 0, :, [0, 7]].mean() < 10


def test_both_kinds_of_outliers_together() -> None:
    both = open_source("embedded:ood")
    assert torch.equal(both.inputs[:1000], open_source("embedded:near").inputs)
    assert torch.equal(both.inputs[1000:], open_source("embedded:far").inputs)


def test_another_process_imports_no_more_than_it_uses_and_makes_the_same_data() -> None:
    code = """
import sys
from calibrant.data import open_source
print({"PIL", "pyarrow", "matplotlib", "pooch", "sklearn"} & set(sys.modules))
print(open_source("embedded:ood", split="all").fingerprint)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", open_source("embedded:ood", split="all").fingerprint]


def test_outliers_for_training_and_for_the_test(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", inputs=np.arange(10.0)[:, None])
    spec = f"npz:{tmp_path / 'd.npz'}"
    uncertainty, test, splits = outlier_parts(spec, seed=1)
    assert splits is not None
    assert (len(uncertainty), len(test)) == (6, 4)
    assert sorted(torch.cat([uncertainty.inputs, test.inputs]).flatten().tolist()) == list(range(10))
    assert len(outlier_parts(spec, uncertainty_size=7)[1]) == 3
    given = Splits(10, {"uncertainty": torch.tensor([3, 1]), "ood_test": torch.tensor([2])})
    assert outlier_parts(spec, splits=given)[0].inputs.flatten().tolist() == [3, 1]
    with pytest.raises(DataError, match="split is of 11 examples, but the data has 10"):
        outlier_parts(spec, splits=Splits(11, given.parts))
    with pytest.raises(DataError, match="no part 'ood_test'"):
        outlier_parts(spec, splits=Splits(10, {"uncertainty": given["uncertainty"]}))
    near = outlier_parts("embedded:near")
    assert near[1].fingerprint == open_source("embedded:near", split="test").fingerprint
    with pytest.raises(DataError, match="leave splits out"):
        outlier_parts("embedded:near", splits=given)


def test_sources_tell_how_to_get_them_and_how_to_augment() -> None:
    kinds = {info.kind: info for info in list_sources()}
    assert set(kinds) == {
        "embedded",
        "cifar10",
        "cifar100",
        "imagenet-resize",
        "lsun-resize",
        "folder",
        "npz",
        "parquet",
        "csv",
        "fashion-mnist",
        "letters",
        "noise",
    }
    assert all(info.about and info.obtain and info.spec.startswith(info.kind) for info in kinds.values())
    standard, small = augmentation_for("cifar100:/data"), augmentation_for("embedded:near")
    assert standard is not None
    assert (standard.padding, standard.flip) == (4, True)
    assert small is not None
    assert not small.flip
    assert augmentation_for("npz:file.npz") is None


def test_streaming_of_a_source_in_memory() -> None:
    batches = list(iter_batches("embedded", 200, split="test"))
    assert [len(ids) for ids, _ in batches] == [200, 200, 100]
    assert batches[2][0][-1] == "499"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nothing", "neither a source"),
        ("nothing:/data", "neither a source"),
        ("embedded:middle", "no embedded set 'middle'"),
        ("embedded?size=3", "embedded has no option 'size'; it has none"),
        ("folder:/data?sise=3", "folder has no option 'sise'; it has size, color"),
        ("folder:/data?size", "name=value"),
        ("npz", "npz needs a path: write npz:FILE"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_source(spec)


def test_bad_splits_and_sizes() -> None:
    with pytest.raises(DataError, match="split must be train, test or all"):
        open_source("embedded", split="validation")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="batch_rows"):
        next(iter_batches("embedded", 0))
    assert not has_parts("lsun-resize:/data")


def test_paths_with_colons_and_encoded_options(tmp_path: Path) -> None:
    assert Spec.parse("npz:C:/data.npz").path == "C:/data.npz"
    assert Spec.parse("parquet:a.parquet?label=my%20label&features=a,b").options == {
        "label": "my label",
        "features": "a,b",
    }
