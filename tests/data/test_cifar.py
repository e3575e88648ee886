"""CIFAR and the ODIN sets, on tiny archives in exactly the published layouts; the restricted unpickler; downloads."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import os
import pickle
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from calibrant.config.groups import DataSettings
from calibrant.data import DataError, download, open_source
from calibrant.data.download import Archive, archives
from calibrant.data.images import ImageForm, pil_to_tensor
from calibrant.data.unpickle import read_arrays
from calibrant.slots import lookup
from calibrant.training import open_data

Files = dict[str, bytes]
ROWS = 4


def python2_string(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text if len(text) < 256 else b"T" + struct.pack("<i", len(text)) + text


def python2_pickle(rows: NDArray[np.uint8], key: bytes, labels: list[int]) -> bytes:
    """A batch as Python 2 wrote it in protocol 2: byte strings for keys and pixels, numpy.core's reconstruct."""
    pixels = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python2_string(b"b") + b"\x87R"
        b"(K\x01K" + bytes([len(rows)]) + b"M\x00\x0c\x86"
        b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + python2_string(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        + python2_string(rows.tobytes()) + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    label = python2_string(b"batch_label") + python2_string(b"training batch 1 of 5")
    return b"\x80\x02}(" + label + python2_string(key) + numbers + python2_string(b"data") + pixels + b"u."


def pixels(seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (ROWS, 3072)).astype(np.uint8)


def cifar10_python() -> Files:
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = {name: python2_pickle(pixels(i), b"labels", [i, 9, 0, 3]) for i, name in enumerate(names)}
    meta = {b"num_cases_per_batch": ROWS, b"label_names": [b"airplane", *(b"c%d" % i for i in range(1, 10))]}
    return {**files, "batches.meta": pickle.dumps(meta, protocol=2), "readme.html": b"<html>"}


def cifar10_binary() -> Files:
    files = {}
    for i, name in enumerate([f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]):
        files[name] = b"".join(bytes([label]) + row.tobytes() for label, row in zip([i, 9, 0, 3], pixels(i)))
    return {**files, "batches.meta.txt": b"airplane\n" + b"".join(b"c%d\n" % i for i in range(1, 10)) + b"\n"}


def cifar100_python() -> Files:
    names = {b"fine_label_names": [b"f%d" % i for i in range(100)], b"coarse_label_names": [b"coarse"] * 20}
    parts = {name: python2_pickle(pixels(i), b"fine_labels", [i, 99, 0, 3]) for i, name in enumerate(("train", "test"))}
    return {**parts, "meta": pickle.dumps(names, protocol=2), "file.txt~": b""}


def cifar100_binary() -> Files:
    parts = {}
    for i, name in enumerate(("train.bin", "test.bin")):
        parts[name] = b"".join(bytes([19, fine]) + row.tobytes() for fine, row in zip([i, 99, 0, 3], pixels(i)))
    names = b"".join(b"f%d\n" % i for i in range(100))
    return {**parts, "fine_label_names.txt": names, "coarse_label_names.txt": b"coarse\n" * 20}


VERSIONS = [
    ("cifar10", "cifar-10-python", "cifar-10-batches-py", cifar10_python),
    ("cifar10", "cifar-10-binary", "cifar-10-batches-bin", cifar10_binary),
    ("cifar100", "cifar-100-python", "cifar-100-python", cifar100_python),
    ("cifar100", "cifar-100-binary", "cifar-100-binary", cifar100_binary),
]


def write_folder(parent: Path, folder: str, files: Files) -> Path:
    (parent / folder).mkdir(parents=True)
    for name, content in files.items():
        (parent / folder / name).write_bytes(content)
    return parent / folder


def write_archive(path: Path, folder: str, files: Files) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(("kind", "stem", "folder", "make"), VERSIONS)
@pytest.mark.parametrize("place", ["folder", "parent", "archive", "parent of archive"])
def test_every_version_at_every_place(
    tmp_path: Path, kind: str, stem: str, folder: str, make: object, place: str
) -> None:
    files = make()  # type: ignore[operator]
    if "archive" in place:
        path = write_archive(tmp_path / f"{stem}.tar.gz", folder, files)
    else:
        path = write_folder(tmp_path, folder, files)
    spec = f"{kind}:{path.parent if 'parent' in place else path}"
    train, test = open_source(spec, download=False), open_source(spec, split="test", download=False)
    batches = 5 if kind == "cifar10" else 1
    expected = np.concatenate([pixels(i) for i in range(batches)]).reshape(-1, 3, 32, 32)
    assert np.array_equal(train.inputs.numpy(), expected)
    assert np.array_equal(test.inputs.numpy(), pixels(batches).reshape(-1, 3, 32, 32))
    last = 9 if kind == "cifar10" else 99
    assert train.labels is not None
    assert train.labels.tolist() == [label for i in range(batches) for label in (i, last, 0, 3)]
    assert train.classes is not None
    assert (len(train.classes), train.classes[0]) == (last + 1, "airplane" if kind == "cifar10" else "f0")
    assert len(open_source(spec, split="all", download=False)) == ROWS * (batches + 1)
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name}


def test_published_images_at_another_size_are_as_pillow_makes_them(tmp_path: Path) -> None:
    spec = f"cifar10:{write_folder(tmp_path, 'cifar-10-batches-py', cifar10_python())}"
    whole, small = open_source(spec, split="test"), open_source(spec + "?size=16", split="test")
    form = ImageForm((16, 16))
    expected = torch.stack([pil_to_tensor(Image.fromarray(one.permute(1, 2, 0).numpy()), form) for one in whole.inputs])
    assert (small.inputs.int() - expected.int()).abs().max() <= 1  # they round halves differently
    assert small.labels is not None
    assert whole.labels is not None
    assert torch.equal(small.labels, whole.labels)
    with pytest.raises(DataError, match="size must be a number"):
        open_source(spec + "?size=big")
    settings = DataSettings(source="cifar10?size=8", root=str(tmp_path), validation=2)
    assert open_data(settings, seed=0).train.take(torch.tensor([0]))[0].shape == (1, 3, 8, 8)


def test_new_numpy_and_python3_pickles() -> None:
    content = {
        "data": np.arange(6, dtype=">u2").reshape(2, 3),
        b"e": b"",
        "f": np.asfortranarray(np.eye(2)),
        "n": [1, None],
    }
    for protocol in (2, 3, 4):
        result = read_arrays(pickle.dumps(content, protocol=protocol), "file")
        assert np.array_equal(result["data"], np.arange(6).reshape(2, 3))
        assert np.array_equal(result["f"], np.eye(2))
        assert (result["e"], result["n"]) == ("", [1, None])


class Harmful:
    def __reduce__(self) -> object:
        return os.system, ("touch /tmp/calibrant-must-not-exist",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": Harmful()}, protocol=2), r"names (posix|nt)\.system"),
        (b"\x80\x02cbuiltins\neval\nU\x011\x85R.", r"names builtins\.eval"),
        (b"\x80\x02cnumpy\nload\nU\x011\x85R.", r"names numpy\.load"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.", r"names builtins\.exec"),
        (pickle.dumps({"data": np.array([{}], dtype=object)}, protocol=2), "instead of numbers"),
        (pickle.dumps({"data": np.zeros(3, "S2")}, protocol=2), "instead of numbers"),
        (pickle.dumps({"data": {1, 2}}, protocol=2), r"names .*set"),
        (pickle.dumps([1, 2], protocol=2), "does not hold a dictionary"),
        (pickle.dumps({1: 2}, protocol=2), "string keys"),
        (b"\x80\x02cnumpy\nndarray\n.", "damaged"),
        (b"", "damaged"),
        (b"\x80\x02Pid\n.", "persistent"),
        (b"<html>not found</html>", "damaged"),
    ],
)
def test_foreign_names_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_arrays(content, "data_batch_1")
    assert not Path("/tmp/calibrant-must-not-exist").exists()


def test_every_truncation_and_many_flips_are_one_sentence() -> None:
    whole = python2_pickle(pixels(0), b"labels", [1, 2, 3, 4])
    rng = np.random.default_rng(0)
    for cut in [*range(120), *rng.integers(120, len(whole), 50).tolist()]:
        with pytest.raises(DataError):
            read_arrays(whole[:cut], "file")
    for place, value in zip(rng.integers(0, 160, 300), rng.integers(0, 256, 300)):
        altered = bytearray(whole)
        altered[place] = value
        with contextlib.suppress(DataError):
            assert isinstance(read_arrays(bytes(altered), "file"), dict)


def test_damaged_cifar(tmp_path: Path) -> None:
    files = cifar10_python()
    folder = write_folder(tmp_path, "cifar-10-batches-py", files)
    (folder / "data_batch_3").unlink()
    with pytest.raises(DataError, match="lacks data_batch_3"):
        open_source(f"cifar10:{tmp_path}")
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}, protocol=2))
    with pytest.raises(DataError, match="no entry 'labels'"):
        open_source(f"cifar10:{tmp_path}")
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": np.zeros((2, 9)), "labels": [0, 1]}, protocol=2))
    with pytest.raises(DataError, match="data_batch_3 does not hold images of CIFAR-10"):
        open_source(f"cifar10:{tmp_path}")
    binary = write_folder(tmp_path / "b", "cifar-100-binary", cifar100_binary())
    (binary / "train.bin").write_bytes(b"\x00" * 5000)
    with pytest.raises(DataError, match="cut short: 5000 bytes are not whole records of 3074"):
        open_source(f"cifar100:{binary}")


def test_damaged_archives(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_python())
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], whole[:-9], b"<html>", b"", whole[:3000] + b"\x00" * 50 + whole[3050:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz"):
            open_source(f"cifar10:{path}")


def test_a_hostile_archive_writes_nothing(tmp_path: Path) -> None:
    files = {f"../../{name}": content for name, content in cifar10_python().items()}
    write_archive(tmp_path / "cifar-10-python.tar.gz", "x", files)
    assert len(open_source(f"cifar10:{tmp_path}", download=False)) == 5 * ROWS
    assert len(list(tmp_path.iterdir())) == 1


def jpegs(numbers: list[int], size: int = 32) -> Files:
    files = {}
    for number in numbers:
        stream = io.BytesIO()
        Image.new("RGB", (size, size), (number, 100, 200)).save(stream, "png")
        files[f"{number}.jpg"] = stream.getvalue()
    return files


@pytest.mark.parametrize(("kind", "folder"), [("imagenet-resize", "Imagenet_resize"), ("lsun-resize", "LSUN_resize")])
def test_odin_sets_are_ordered_by_number(tmp_path: Path, kind: str, folder: str) -> None:
    files = jpegs(list(range(12)))
    inner = write_folder(tmp_path / "unpacked" / folder, folder, files)
    archive = write_archive(tmp_path / f"{folder}.tar.gz", f"{folder}/{folder}", {**files, "._1.jpg": b"mac"})
    for path in (inner, inner.parent, inner.parent.parent, archive, tmp_path):
        data = open_source(f"{kind}:{path}", download=False)
        assert data.inputs[:, 0, 5, 5].tolist() == list(range(12))
        assert data.labels is None
    with pytest.raises(DataError, match="no test part of its own"):
        open_source(f"{kind}:{tmp_path}", split="test")
    (inner / "7.jpg").unlink()
    with pytest.raises(DataError, match="lacks image number 7"):
        open_source(f"{kind}:{inner}")
    (inner / "7.jpg").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"7\.jpg cannot be decoded"):
        open_source(f"{kind}:{inner}")
    (inner / "7.jpg").write_bytes(jpegs([7], size=30)["7.jpg"])
    with pytest.raises(DataError, match=r"7\.jpg is 30 x 30"):
        open_source(f"{kind}:{inner}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    served = tmp_path / "served"
    served.mkdir()
    write_archive(served / "cifar-10-python.tar.gz", "cifar-10-batches-py", cifar10_python())

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(served))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as local:
        thread = threading.Thread(target=local.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{local.server_port}/cifar-10-python.tar.gz"
        local.shutdown()
        thread.join()


def test_download_checks_the_sum(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = (tmp_path / "served" / "cifar-10-python.tar.gz").read_bytes()
    target = tmp_path / "data"
    target.mkdir()
    monkeypatch.setattr(lookup("source", "cifar10"), "archive", Archive("cifar-10-python.tar.gz", server, "0" * 32))
    with pytest.raises(DataError, match="checksum is wrong"):
        open_source(f"cifar10:{target}")
    assert list(target.iterdir()) == []
    right = Archive("cifar-10-python.tar.gz", server, hashlib.md5(served, usedforsecurity=False).hexdigest())
    monkeypatch.setattr(lookup("source", "cifar10"), "archive", right)
    with pytest.raises(DataError, match="is not at"):
        open_source(f"cifar10:{target}", download=False)
    assert len(open_source(f"cifar10:{target}")) == 5 * ROWS
    assert [path.name for path in target.iterdir()] == ["cifar-10-python.tar.gz"]
    monkeypatch.setenv("CALIBRANT_DATA", str(tmp_path / "cache"))
    assert download("cifar10").parent == tmp_path / "cache"
    assert len(open_source("cifar10")) == 5 * ROWS


def test_without_a_network_the_error_says_what_to_put_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for kind, archive in archives().items():
        unreachable = Archive(archive.file, "http://127.0.0.1:9/file", archive.md5)
        monkeypatch.setattr(lookup("source", kind), "archive", unreachable)
        with pytest.raises(DataError) as caught:
            open_source(f"{kind}:{tmp_path}")
        assert archive.file in str(caught.value)
        assert str(tmp_path) in str(caught.value)
    with pytest.raises(DataError, match="does not exist"):
        open_source(f"cifar10:{tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="no archive of 'npz'"):
        download("npz", tmp_path)


def test_published_checksums_are_md5() -> None:
    assert all(len(archive.md5) == 32 and int(archive.md5, 16) for archive in archives().values())
    assert all(archive.url.startswith("https://") for archive in archives().values())
