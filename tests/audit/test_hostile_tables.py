"""Damaged and hostile tables: one sentence, and no more memory than the file deserves."""

from __future__ import annotations

import io
import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrant.audit import audit

GOOD = {"confidence": np.array([0.6, 0.9]), "correct": np.array([1, 0])}


def member(header: str, content: bytes = b"") -> bytes:
    """An array as NPY writes it, with a header of one's own."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


def described(shape: str, dtype: str = "<f8", order: str = "False") -> str:
    return f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}}}"


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("__", "."), content)
    return path


def npy(values: Any) -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array(content, np.asarray(values))
    return content.getvalue()


def refused(message: str, source: Any, **options: Any) -> None:
    """In one sentence and within 30 MB."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            audit(source, **options)
        assert "\n" not in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "header",
    [
        described("(1000000000000,)"),
        described("(1000000000000, 2)", order="True"),
        described("(-2,)"),
        described("(2, -1)"),
        described("(2, 1000000000000)"),
        described("(1000000000000, 0)"),
        described("(1000000000000,)", dtype="<U0"),
        described("()"),
        described("(2,)", dtype="<f9"),
        "[" * 3000,
        "{",
        described("(2,)", dtype="|O"),
    ],
)
def test_headers_that_promise_what_is_not_there(header: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "p.npz", confidence__npy=member(header, b"\0" * 16), correct__npy=npy([1, 0]))
    refused("damaged array 'confidence'|Python objects", path)


def test_entries_without_npy_are_no_arrays(tmp_path: Path) -> None:
    path = archive(tmp_path / "p.npz", confidence=npy([0.5, 0.6]), correct__npy=npy([1, 0]))
    refused("has no column 'confidence'; it has correct", path)
    refused("holds no arrays", archive(tmp_path / "q.npz", readme=b"hello"))


def test_a_file_that_is_cut_or_altered(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "p.npz", confidence=np.random.default_rng(0).random(5000), correct=np.ones(5000))
    content = bytearray((tmp_path / "p.npz").read_bytes())
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    refused("is not a whole NPZ file", tmp_path / "cut.npz")
    content[2000:2040] = b"\0" * 40
    (tmp_path / "altered.npz").write_bytes(content)
    refused("is not a whole NPZ file", tmp_path / "altered.npz")


def test_long_doubles_are_read_as_doubles(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", confidence=np.array([0.6, 0.9], np.longdouble), correct=np.array([1, 0]))
    assert audit(tmp_path / "p.npz").rows[0].accuracy.estimate == 0.5


def test_numbers_in_another_byte_order_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", confidence=np.array([0.6, 0.9], ">f4"), correct=np.array([1, 0], ">i2"))
    assert audit(tmp_path / "p.npz").rows[0].accuracy.estimate == 0.5


def test_columns_that_are_no_numbers(tmp_path: Path) -> None:
    for values in (np.array(["a", "b"]), np.array([1j, 2]), np.zeros((2, 3)), np.zeros((2, 2, 2))):
        np.savez(tmp_path / "p.npz", confidence=values, correct=np.array([1, 0]))
        refused("column 'confidence' must hold numbers", tmp_path / "p.npz")


@pytest.mark.parametrize("bins", [0, -1, 1_000_000_000, 2.5, True])
def test_bins_are_bounded(bins: Any) -> None:
    refused("bins must be a whole number from 1 to 1,000", GOOD, bins=bins)


def test_columns_without_names_that_are_known_are_not_tried_in_every_run(tmp_path: Path) -> None:
    """Of 20,000 columns there are 200,000,000 runs of neighbors, of 7,000 columns each."""
    lines = (",".join(f"c{place}" for place in range(20_000)), ",".join(["0.1"] * 20_000))
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    refused("has no column 'confidence'", tmp_path / "wide.csv")


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    refused("is no table that can be read", tmp_path / "pipe.csv")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_long_label_does_not_widen_all(tmp_path, suffix):
    """As an array of text, as wide as its longest cell, the labels would have 16 GB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    labels, path = ["x"] * 3999 + ["y" * 10**6], tmp_path / f"d.{suffix}"
    if suffix == "csv":
        path.write_text("confidence,label,predicted\n" + "".join(f"0.5,{label},x\n" for label in labels))
    else:
        table = {"confidence": [0.5] * 4000, "label": labels, "predicted": ["x"] * 4000}
        pq.write_table(pa.table(table), path)
    with pytest.raises(ValueError, match="the labels have up to 1,000,000 characters, too many to compare 4,000 rows"):
        audit(path)


def test_several_columns_may_have_no_name(tmp_path: Path) -> None:
    path = tmp_path / "unnamed.csv"
    path.write_text(",confidence,correct,\n" + "0,0.9,1,7\n1,0.6,0,8\n" * 20)
    assert audit(path, remedies=False).rows[0].n_id == 40
    path.write_text(";\n\r,[[nan;[[\n")
    with pytest.raises(ValueError, match="confidence"):
        audit(path)
