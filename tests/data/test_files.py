"""Image folders, NPZ and Parquet files: whole, in batches, and in pieces."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from calibrant.data import DataError, has_parts, iter_batches, open_source


def encoded(value: int, size: tuple[int, int] = (6, 4), mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, (value, 1, 2) if mode == "RGB" else value).save(stream, "png")
    return stream.getvalue()


def write_images(folder: Path, **images: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in images.items():
        (folder / f"{name}.png").write_bytes(encoded(value))


# folders


def test_a_subfolder_is_a_class(tmp_path: Path) -> None:
    write_images(tmp_path / "dog", a=1, b=2)
    write_images(tmp_path / "cat", c=3)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    data = open_source(f"folder:{tmp_path}")
    assert data.inputs.shape == (3, 3, 4, 6)
    assert data.inputs[:, 0, 0, 0].tolist() == [3, 1, 2]
    assert data.labels is not None
    assert (data.labels.tolist(), data.classes) == ([0, 1, 1], ("cat", "dog"))
    assert open_source(str(tmp_path)).fingerprint == data.fingerprint


def test_images_without_labels_resized_and_in_gray(tmp_path: Path) -> None:
    write_images(tmp_path, a=1, b=2)
    (tmp_path / "c.png").write_bytes(encoded(9, size=(8, 8), mode="L"))
    with pytest.raises(DataError, match=r"c\.png is 8 x 8 pixels, but those before it are 4 x 6; give size="):
        open_source(f"folder:{tmp_path}")
    data = open_source(f"folder:{tmp_path}?size=5x3&color=gray")
    assert (data.inputs.shape, data.labels) == ((3, 1, 5, 3), None)
    assert data.inputs[2].unique().tolist() == [9]
    assert open_source(f"folder:{tmp_path}?size=5").inputs.shape == (3, 3, 5, 5)


def test_folders_with_parts_number_classes_alike(tmp_path: Path) -> None:
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        write_images(tmp_path / "train" / name, x=value)
    write_images(tmp_path / "test" / "c", y=30)
    assert has_parts(f"folder:{tmp_path}")
    test = open_source(f"folder:{tmp_path}", split="test")
    assert test.labels is not None
    assert (test.labels.tolist(), test.classes) == ([2], ("a", "b", "c"))
    assert len(open_source(f"folder:{tmp_path}", split="all")) == 4
    assert [ids for ids, _ in iter_batches(f"folder:{tmp_path}", split="test")] == [["test/c/y.png"]]
    write_images(tmp_path / "test" / "d", y=30)
    with pytest.raises(DataError, match=r"d is a class that .*train does not have"):
        open_source(f"folder:{tmp_path}", split="test")


def test_streamed_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "a", **{f"i{number}": number for number in range(5)})
    write_images(tmp_path / "b", j=9)
    batches = list(iter_batches(str(tmp_path), 4))
    assert [ids for ids, _ in batches] == [["a/i0.png", "a/i1.png", "a/i2.png", "a/i3.png"], ["a/i4.png", "b/j.png"]]
    whole = open_source(f"folder:{tmp_path}").inputs
    assert torch.equal(torch.cat([inputs for _, inputs in batches]), whole)
    ids, inputs = next(iter_batches(str(tmp_path / "b" / "j.png")))
    assert (ids, inputs[0, 0, 0, 0]) == (["j.png"], 9)
    (tmp_path / "b" / "k.png").write_bytes(encoded(1, size=(9, 9)))
    with pytest.raises(DataError, match=r"k\.png is 9 x 9"):
        list(iter_batches(str(tmp_path), 6))


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"caf\xe9/0.png"])
def test_names_that_are_no_text_are_refused_before_images_are_read(tmp_path: Path, name: bytes) -> None:
    """They could be read, but neither printed nor written to a table of predictions."""
    path = tmp_path / "photos" / os.fsdecode(name)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no image")
    for read in (open_source, lambda spec: list(iter_batches(spec))):
        with pytest.raises(DataError, match=r"a name that is no UTF-8 text; rename it"):
            read(f"folder:{tmp_path / 'photos'}?size=4")


def test_bad_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_source(f"folder:{tmp_path / 'none'}")
    with pytest.raises(DataError, match="holds no images"):
        open_source(f"folder:{tmp_path}")
    write_images(tmp_path / "a", x=1)
    (tmp_path / "b").mkdir()
    with pytest.raises(DataError, match="b is a class without images"):
        open_source(f"folder:{tmp_path}")
    write_images(tmp_path / "b", x=1)
    (tmp_path / "b" / "cut.jpg").write_bytes(encoded(3)[:40])
    with pytest.raises(DataError, match=r"cut\.jpg cannot be decoded"):
        open_source(f"folder:{tmp_path}")
    Image.fromarray(np.zeros((4, 6), np.uint16)).save(tmp_path / "b" / "cut.png")
    (tmp_path / "b" / "cut.jpg").unlink()
    with pytest.raises(DataError, match=r"cut\.png cannot be used: it has more than 8 bits"):
        open_source(f"folder:{tmp_path}")
    write_images(tmp_path, direct=1)
    with pytest.raises(DataError, match="both images and subfolders"):
        open_source(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="size must be"):
        open_source(f"folder:{tmp_path}?size=0")
    with pytest.raises(DataError, match="color must be"):
        open_source(f"folder:{tmp_path}?color=blue")


# NPZ


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(("x", "y"), [("inputs", "labels"), ("x", "y"), ("X", "target"), ("images", "label")])
def test_npz_whole_and_streamed(tmp_path: Path, save: Any, x: str, y: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 5, 4, 3)).astype(np.uint8)
    save(tmp_path / "d.npz", **{y: np.arange(11) % 3, x: images})
    data = open_source(f"npz:{tmp_path / 'd.npz'}")
    assert np.array_equal(data.inputs.numpy(), images.transpose(0, 3, 1, 2))
    assert data.num_classes == 3
    batches = list(iter_batches(str(tmp_path / "d.npz"), 4))
    assert [len(ids) for ids, _ in batches] == [4, 4, 3]
    assert [name for ids, _ in batches for name in ids] == [str(row) for row in range(11)]
    assert torch.equal(torch.cat([inputs for _, inputs in batches]), data.inputs)


def test_npz_parts_options_and_names(tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    parts = {"x_train": np.ones((3, 2)), "y_train": np.array(["b", "c", "a"])}
    np.savez(file, **parts, x_test=np.zeros((2, 2)), y_test=np.array(["c", "c"]))
    test = open_source(f"npz:{file}", split="test")
    assert test.labels is not None
    assert (test.labels.tolist(), test.classes) == ([2, 2], ("a", "b", "c"))
    assert len(open_source(f"npz:{file}", split="all")) == 5
    assert sum(len(ids) for ids, _ in iter_batches(str(file), 2)) == 5
    np.savez(file, pixels=np.zeros((2, 3, 3, 3), np.uint8) + np.arange(3, dtype=np.uint8), kinds=[0, 1])
    data = open_source(f"npz:{file}?inputs=pixels&labels=kinds&layout=nhwc")
    assert data.inputs[0, :, 0, 0].tolist() == [0, 1, 2]
    assert next(iter_batches(f"npz:{file}?inputs=pixels&layout=nhwc"))[1].shape == (2, 3, 3, 3)


def test_npz_by_columns_and_tokens(tmp_path: Path) -> None:
    table = np.asfortranarray(np.random.default_rng(0).normal(size=(7, 3)))
    np.savez(tmp_path / "d.npz", inputs=table)
    streamed = torch.cat([inputs for _, inputs in iter_batches(str(tmp_path / "d.npz"), 3)])
    np.testing.assert_allclose(streamed.numpy(), table, rtol=1e-6)
    np.savez(tmp_path / "d.npz", inputs=np.arange(6).reshape(2, 3))
    assert open_source(f"npz:{tmp_path / 'd.npz'}").inputs.dtype == torch.int64


def test_npz_is_streamed_in_bounded_memory(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", inputs=np.zeros((4000, 3, 32, 32), np.uint8))
    tracemalloc.start()
    rows = sum(len(ids) for ids, _ in iter_batches(str(tmp_path / "d.npz"), 64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 4000
    assert peak < 3_000_000  # the whole is 12 MB, a batch 0.2 MB


def test_bad_npz(tmp_path: Path) -> None:
    file = tmp_path / "d.npz"
    for action in (lambda: open_source(f"npz:{file}"), lambda: list(iter_batches(f"npz:{file}"))):
        file.unlink(missing_ok=True)
        with pytest.raises(DataError, match="does not exist"):
            action()
        np.savez(file, inputs=np.random.default_rng(0).normal(size=(100, 3)))
        whole = file.read_bytes()
        for content in (whole[:900], b"text", b"", whole[:1000] + b"\x00" * 9 + whole[1009:]):
            file.write_bytes(content)
            with pytest.raises(DataError, match=r"d\.npz"):
                action()
        np.savez(file, inputs=np.array([{}, {}], dtype=object))
        with pytest.raises(DataError, match="save plain numbers"):
            action()
        np.savez(file, stuff=np.zeros(3))
        with pytest.raises(DataError, match="it has stuff: name one with inputs="):
            action()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("inputs.npy", b"no array at all")
        with pytest.raises(DataError, match="'inputs'"):
            action()
    np.savez(file, inputs=np.zeros((3, 2)), labels=np.zeros(2, int))
    with pytest.raises(DataError, match="3 inputs but 2 labels"):
        open_source(f"npz:{file}")
    with pytest.raises(DataError, match="no array 'kind' of labels"):
        open_source(f"npz:{file}?labels=kind")
    with pytest.raises(DataError, match="layout must be"):
        open_source(f"npz:{file}?layout=cwhn")
    np.savez(file, inputs=np.zeros((0, 2)))
    with pytest.raises(DataError, match="no rows"):
        open_source(f"npz:{file}")


# Parquet


def write_parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=4)
    return path


def test_parquet_of_features(tmp_path: Path) -> None:
    file = write_parquet(
        tmp_path / "d.parquet",
        name=[f"row {i}" for i in range(10)],
        a=np.arange(10.0),
        label=["no", "yes"] * 5,
        b=np.arange(10) * 2,
    )
    data = open_source(f"parquet:{file}")
    assert torch.equal(data.inputs, torch.stack([torch.arange(10.0), torch.arange(10.0) * 2], 1))
    assert data.labels is not None
    assert (data.labels.tolist(), data.classes) == ([0, 1] * 5, ("no", "yes"))
    assert open_source(f"parquet:{file}?features=b").inputs.flatten().tolist() == list(range(0, 20, 2))
    batches = list(iter_batches(f"parquet:{file}?id=name", 3))
    assert [name for ids, _ in batches for name in ids] == [f"row {i}" for i in range(10)]
    assert max(len(ids) for ids, _ in batches) == 3
    assert torch.equal(torch.cat([inputs for _, inputs in batches]), data.inputs)
    unlabeled = write_parquet(tmp_path / "p.parquet", a=np.arange(3.0), b=np.arange(3))
    assert [ids for ids, _ in iter_batches(f"parquet:{unlabeled}?label=kind")] == [["0", "1", "2"]]


@pytest.mark.parametrize("nested", [False, True])
def test_parquet_of_images(tmp_path: Path, nested: bool) -> None:
    contents: list[Any] = [encoded(value) for value in (5, 6, 7, 8, 9)]
    if nested:
        contents = [{"bytes": content, "path": None} for content in contents]
    file = write_parquet(tmp_path / "d.parquet", img=contents, fine_label=[0, 1, 2, 1, 0], extra=np.zeros(5))
    data = open_source(f"parquet:{file}")
    assert data.inputs.shape == (5, 3, 4, 6)
    assert data.inputs[:, 0, 0, 0].tolist() == [5, 6, 7, 8, 9]
    assert data.num_classes == 3
    streamed = torch.cat([inputs for _, inputs in iter_batches(f"parquet:{file}?size=2&color=gray", 2)])
    assert streamed.shape == (5, 1, 2, 2)


def test_parquet_of_lists_and_parts(tmp_path: Path) -> None:
    tokens = [[1, 2, 3], [4, 5, 6]]
    write_parquet(tmp_path / "train-00000-of-00002.parquet", tokens=tokens, label=["b", "a"])
    write_parquet(tmp_path / "train-00001-of-00002.parquet", tokens=tokens, label=["c", "a"])
    write_parquet(tmp_path / "test-00000-of-00001.parquet", tokens=tokens[:1], label=["c"])
    train, test = (open_source(f"parquet:{tmp_path}", split=split) for split in ("train", "test"))  # type: ignore[arg-type]
    assert (train.inputs.dtype, train.inputs.tolist()) == (torch.int64, tokens * 2)
    assert train.labels is not None
    assert test.labels is not None
    assert (train.labels.tolist(), test.labels.tolist(), test.classes) == ([1, 0, 2, 0], [2], ("a", "b", "c"))
    ids = [name for names, _ in iter_batches(str(tmp_path), split="train") for name in names]
    assert ids == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [1.0], "kind": ["x"]}, "?label=label", "no column 'label'; it has a, kind"),
        ({"a": [1.0]}, "?image=a", "not the bytes of image files"),
        ({"a": [1.0]}, "?features=b", "no column 'b'"),
        ({"a": ["x"], "b": [1.0]}, "?features=a,b", "'a', not numbers"),
        ({"a": ["x"]}, "", "must have columns of numbers"),
        ({"a": [1.0, None]}, "", "no value in column 'a' of row 1"),
        ({"a": [1.0, float("nan")]}, "", "row 1"),
        ({"a": [1.0, 2.0], "label": [0.5, 1.0]}, "", "class indices or class names"),
        ({"a": [1.0, 2.0], "label": ["x", None]}, "", "column 'label' of row 1"),
        ({"a": [[1, 2], [3]]}, "", "different lengths"),
        ({"image": [b"nothing"]}, "", "image in row 0 of .* cannot be decoded"),
        ({"image": [{"bytes": None, "path": "x.png"}]}, "", "a path but no bytes"),
        ({"image": [encoded(1), encoded(1, (9, 9))]}, "", "in row 1 of .* is 9 x 9"),
        ({"a": pa.array([], pa.float64())}, "", "no rows"),
    ],
)
def test_bad_columns(tmp_path: Path, columns: dict[str, Any], options: str, message: str) -> None:
    file = write_parquet(tmp_path / "d.parquet", **columns)
    with pytest.raises(DataError, match=message) as caught:
        open_source(f"parquet:{file}{options}")
    assert "\n" not in str(caught.value)


def test_damaged_parquet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no Parquet file"):
        open_source(f"parquet:{tmp_path / 'none.parquet'}")
    file = write_parquet(tmp_path / "d.parquet", a=np.random.default_rng(0).normal(size=500), b=np.zeros(500))
    whole = file.read_bytes()
    for content in (whole[:-20], whole[:100], b"", b"text", whole[:4] + b"\xff" * 60 + whole[64:]):
        file.write_bytes(content)
        with pytest.raises(DataError, match=r"d\.parquet") as caught:
            open_source(f"parquet:{file}")
        assert "\n" not in str(caught.value)


def test_shapes_may_not_change_between_batches(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", x=[[1, 2], [3, 4]])
    write_parquet(tmp_path / "b.parquet", x=[[1, 2, 3]])
    with pytest.raises(DataError, match=r"shape \(3,\) after \(2,\)"):
        open_source(f"parquet:{tmp_path}")
    with pytest.raises(DataError, match=r"shape \(3,\) after \(2,\)"):
        list(iter_batches(f"parquet:{tmp_path}"))
