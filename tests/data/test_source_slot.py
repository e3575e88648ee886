"""A source is one class with one registration, also from outside the package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import TINY_OPTIONS, Caller, call, read_rows

from calibrant import slots
from calibrant.data import ArrayData, DataError, Source, Spec, iter_batches, list_sources, open_source, outlier_parts
from calibrant.slots import register

__all__ = ["call"]
DOCS = Path(__file__).parents[2] / "docs" / "data.md"


@pytest.fixture
def blobs() -> Iterator[None]:
    """A source `blobs`, known during one test."""

    @register("source", "blobs")
    class BlobSource(Source):
        spec = "blobs:FILE?scale=2"
        about = "a text file with the number of points"

        def __init__(self, path: str, *, scale: str = "1") -> None:
            super().__init__(path)
            self.scale = float(scale)

        def read(self, part: str | None) -> ArrayData:
            rng = np.random.default_rng(0)
            labels = np.arange(int(self.path.read_text())) % 3
            points = self.scale * (rng.normal(size=(len(labels), 2)) + 5 * labels[:, None])
            return ArrayData(torch.tensor(points, dtype=torch.float32), torch.tensor(labels))

        def columns(self) -> dict[str, object]:
            return {"used": ["x", "y"], "label": "blob", "ignored": []}

    yield
    del slots._registered["source", "blobs"]


@pytest.mark.usefixtures("blobs")
def test_a_source_from_outside_is_read_as_ours_are(tmp_path: Path) -> None:
    file = tmp_path / "points"
    file.write_text("30")
    assert next(info for info in list_sources() if info.kind == "blobs").options == ("scale",)
    one, two = open_source(f"blobs:{file}"), open_source(f"blobs:{file}?scale=2", split="all")
    assert torch.equal(2 * one.inputs, two.inputs)
    assert torch.equal(torch.cat([x for _, x in iter_batches(f"blobs:{file}?scale=2", 7)]), two.inputs)
    assert [len(part) for part in outlier_parts(f"blobs:{file}")[:2]] == [18, 12]
    with pytest.raises(DataError, match="has no test part"):
        open_source(f"blobs:{file}", split="test")
    with pytest.raises(DataError, match="blobs has no option 'shift'; it has scale"):
        Spec.parse(f"blobs:{file}?shift=2")
    with pytest.raises(DataError, match=r"blobs needs a path: write blobs:FILE\?scale=2"):
        Spec.parse("blobs")


@pytest.mark.usefixtures("blobs")
def test_a_source_from_outside_works_on_the_command_line(call: Caller, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.write_text("600")
    outside.write_text("200")
    assert "blobs:FILE?scale=2" in call("data", "--root", tmp_path).out
    shown = call("data", f"blobs:{inside}").out
    assert "600 inputs of 2, float32, with labels" in shown
    assert "2 columns used: x, y" in shown
    data = ["--data", f"blobs:{inside}?scale=0.5", "--uncertainty", f"blobs:{outside}?scale=3"]
    call("train", *data, "--out", tmp_path / "run", "--scheme", "FNN", *TINY_OPTIONS, "-o", "data.uncertainty_size=120")
    call("predict", tmp_path / "run", f"blobs:{outside}?scale=0.5", "--out", tmp_path / "p.csv")
    rows = read_rows(tmp_path / "p.csv")
    assert [row["id"] for row in rows] == [str(number) for number in range(200)]


def test_a_source_that_is_not_registered_is_refused_with_what_there_is() -> None:
    with pytest.raises(DataError, match=r"'blobs:x' is neither a source \(cifar10, .*--plugin MODULE"):
        open_source("blobs:x")


def test_every_source_says_what_it_is() -> None:
    for info in list_sources():
        assert info.spec.startswith(info.kind)
        assert issubclass(slots.lookup("source", info.kind), Source)
        assert list(info.options) == list(slots.options_of("source", info.kind))


@pytest.mark.skipif(not DOCS.exists(), reason="the source distribution has no docs")
def test_the_docs_name_every_source_and_their_example_works(tmp_path: Path) -> None:
    text = DOCS.read_text()
    assert all(f"`{info.kind}" in text for info in list_sources())
    example = next(block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "SensorSource" in block)
    (tmp_path / "log.txt").write_text("\n".join(map(str, range(100))))
    try:
        exec(example, {"__name__": "sensors"})
        assert open_source(f"sensor:{tmp_path / 'log.txt'}?window=32").inputs.shape == (3, 32)
    finally:
        slots._registered.pop(("source", "sensor"), None)
