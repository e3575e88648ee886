"""Fashion-MNIST in the IDX format: what is read, and what is refused in one sentence."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from calibrant.data import DataError, open_source
from calibrant.data import fashion_mnist as module
from calibrant.data.fashion_mnist import CLASSES

IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
COUNT = 10_000


def idx(content: np.ndarray, *, magic: bytes = b"\0\0\x08") -> bytes:
    shape = b"".join(size.to_bytes(4, "big") for size in content.shape)
    return magic + bytes([content.ndim]) + shape + content.astype(np.uint8).tobytes()


def pixels() -> np.ndarray:
    """Image i has i mod 251 in its first pixel, 200 in its last, and 0 elsewhere."""
    images = np.zeros((COUNT, 28, 28), np.uint8)
    images[:, 0, 0], images[:, -1, -1] = np.arange(COUNT) % 251, 200
    return images


@pytest.fixture(autouse=True)
def _no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's copy does not count."""
    monkeypatch.setattr(module, "_SYSTEM", Path("/nowhere/at/all"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The test part."""
    (tmp_path / IMAGES).write_bytes(gzip.compress(idx(pixels()), 1))
    (tmp_path / LABELS).write_bytes(gzip.compress(idx(np.arange(COUNT) % 10), 1))
    return tmp_path


def test_a_part_is_read_byte_by_byte(folder: Path) -> None:
    data = open_source(f"fashion-mnist:{folder}", split="test")
    assert data.inputs.shape == (COUNT, 1, 28, 28)
    assert data.inputs.dtype == torch.uint8
    assert np.array_equal(data.inputs[:, 0].numpy(), pixels())
    assert data.labels is not None
    assert data.labels.tolist() == (np.arange(COUNT) % 10).tolist()
    assert data.classes == CLASSES
    assert len(CLASSES) == 10


@pytest.mark.parametrize("inner", ["fashion-mnist", "FashionMNIST/raw"])
def test_it_is_found_in_the_folders_that_others_use(folder: Path, inner: str) -> None:
    target = folder / "root" / inner
    target.mkdir(parents=True)
    for name in (IMAGES, LABELS):
        (folder / name).rename(target / name)
    assert len(open_source(f"fashion-mnist:{folder / 'root'}", split="test")) == COUNT


def test_size_and_color_are_as_asked(folder: Path) -> None:
    data = open_source(f"fashion-mnist:{folder}?size=14&color=rgb", split="test")
    assert data.inputs.shape == (COUNT, 3, 14, 14)
    assert torch.equal(data.inputs[:, 0], data.inputs[:, 2])
    assert (data.inputs[:, 0, -1, -1] > 0).all()
    with pytest.raises(DataError, match="color must be rgb or gray, not 'blue'"):
        open_source(f"fashion-mnist:{folder}?color=blue", split="test")


def test_what_is_not_there_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"holds no Fashion-MNIST; put its four .gz files into PATH"):
        open_source(f"fashion-mnist:{folder / 'empty'}", split="test")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte.gz cannot be read \(.*No such file"):
        open_source(f"fashion-mnist:{folder}", split="train")
    (folder / LABELS).unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte.gz cannot be read \(.*No such file"):
        open_source(f"fashion-mnist:{folder}", split="test")


WRONG = {
    "another type": lambda: gzip.compress(idx(pixels(), magic=b"\0\0\x0d"), 1),
    "another shape": lambda: gzip.compress(idx(pixels().reshape(COUNT, 14, 56)), 1),
    "fewer images": lambda: gzip.compress(idx(pixels()[:-1]), 1),
    "fewer than declared": lambda: gzip.compress(idx(pixels())[:-1], 1),
    "more than declared": lambda: gzip.compress(idx(pixels()) + b"\0", 1),
    "empty": lambda: gzip.compress(b""),
}
DAMAGED = {
    "cut off": lambda: gzip.compress(idx(pixels()), 1)[:-5000],
    "not compressed": lambda: idx(pixels()[:3]),
    "altered": lambda: _altered(gzip.compress(idx(pixels()), 1)),
}


def _altered(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes(255 - value for value in content[middle : middle + 64]) + content[middle + 64 :]


@pytest.mark.parametrize("case", [*WRONG, *DAMAGED])
def test_a_wrong_or_damaged_file_is_refused_in_one_sentence(folder: Path, case: str) -> None:
    (folder / IMAGES).write_bytes({**WRONG, **DAMAGED}[case]())
    sentence = "is not the file of Fashion-MNIST, which holds bytes of shape" if case in WRONG else "cannot be read"
    with pytest.raises(DataError, match=rf"{IMAGES} {sentence}.*; copy it again$") as refused:
        open_source(f"fashion-mnist:{folder}", split="test")
    assert "\n" not in str(refused.value)


def test_labels_beyond_the_classes_are_refused(folder: Path) -> None:
    (folder / LABELS).write_bytes(gzip.compress(idx(np.arange(COUNT) % 11), 1))
    with pytest.raises(DataError, match=rf"{LABELS} holds the label 10; copy it again"):
        open_source(f"fashion-mnist:{folder}", split="test")


def test_no_more_is_unpacked_than_the_file_should_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that unpacks to gigabytes costs no more than the real one."""
    asked: list[int] = []
    read = gzip.GzipFile.read

    def counted(self: gzip.GzipFile, size: int = -1) -> bytes:
        asked.append(size)
        return read(self, size)

    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    (folder / IMAGES).write_bytes(gzip.compress(idx(pixels()) + bytes(50_000_000), 1))
    with pytest.raises(DataError, match="is not the file of Fashion-MNIST"):
        open_source(f"fashion-mnist:{folder}", split="test")
    assert min(asked) > 0
    assert sum(asked) == 16 + COUNT * 28 * 28 + 1
