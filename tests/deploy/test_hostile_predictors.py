"""Folders that pretend to be predictors, with checksums that agree: one sentence, before anything large is made."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Caller
from predictors import digits

from calibrant import InputError
from calibrant.deploy import load
from calibrant.files import checksum, read_tensors, write_tensors

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return digits(3).predictor().save(tmp_path / "predictor")


def altered(folder: Path, change: Change) -> Path:
    """`folder` with its record changed and the checksum made good."""
    record = json.loads((folder / "predictor.json").read_text())
    del record["checksum"]
    change(record)
    (folder / "predictor.json").write_text(json.dumps({**record, "checksum": checksum(record)}))
    return folder


def retyped(folder: Path, file: str, name: str, make: Callable[[torch.Tensor], torch.Tensor]) -> Path:
    """`folder` with one tensor changed and all checksums made good."""
    tensors = read_tensors(folder / file)
    sha256 = write_tensors(folder / file, {**tensors, name: make(tensors[name])})
    return altered(folder, lambda record: record["files"].update({file: sha256}))


NETWORKS = {
    "mlp-999999999": (1, 8, 8),
    "mlp-100000-100000": (1, 8, 8),
    "wrn-10000000-1": (1, 8, 8),
    "wrn-994-1000": (1, 8, 8),
    "resnet-6000002": (1, 8, 8),
    "cnn-16-100000": (1, 8, 8),
    "cnn-1000000-16": (1, 8, 8),
    "mlp-24": (1, 8, 10**12),
    "mlp": (-1, 8, 8),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_larger_than_its_weights_is_not_built(saved, name):
    altered(saved, lambda record: record["backbone"].update(name=name, shape=NETWORKS[name]))
    with pytest.raises(ValueError, match=r"backbone .* (larger than any|does not fit)|positive sizes|overflow"):
        load(saved)


@pytest.mark.parametrize("classes", [10**12, -1, 0, 10**6])
def test_a_wrong_number_of_classes(saved, classes):
    altered(saved, lambda record: record["backbone"].update(classes=classes))
    with pytest.raises(ValueError, match=r"classes must be|does not fit"):
        load(saved)


CHANGES: dict[str, Change] = {
    "a billion members of the detectors": lambda record: record["outliers"].update(members=10**9),
    "a billion members": lambda record: record.update(members=10**9),
    "no members": lambda record: record.update(members=0),
    "members as text": lambda record: record.update(members="3"),
    "a wide selector": lambda record: record["selector"].update(hidden=10**9),
    "a selector of many inputs": lambda record: record["selector"].update(inputs=10**12),
    "shape as a number": lambda record: record["backbone"].update(shape=3),
    "shape of text": lambda record: record["backbone"].update(shape=["x"]),
    "infinite classes": lambda record: record["backbone"].update(classes=1e400),
    "version as text": lambda record: record.update(version="x"),
    "version as a list": lambda record: record.update(version=[]),
    "version 0": lambda record: record.update(version=0),
    "files as a list": lambda record: record.update(files=[]),
    "threshold as a list": lambda record: record.update(threshold=[1]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_forged_record_is_one_sentence(saved, change):
    altered(saved, CHANGES[change])
    with pytest.raises(ValueError, match=r"predictor|tensors|members|shape"):
        load(saved)


KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty": lambda value: value[:0] if value.dim() else value.new_empty(0),
    "int8": lambda value: value.to(torch.int8),
    "bool": lambda value: value.to(torch.bool),
    "complex": lambda value: value.to(torch.complex64),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", ["ensemble", "outliers", "selector"])
def test_tensors_of_a_wrong_kind(saved, file, kind):
    name = f"{file}.safetensors"
    before, record = read_tensors(saved / name), (saved / "predictor.json").read_bytes()
    original = (saved / name).read_bytes()
    for tensor in [key for key, value in before.items() if value.is_floating_point()]:
        retyped(saved, name, tensor, KINDS[kind])
        with pytest.raises(ValueError, match=r"^[^\n]+$"):
            load(saved)
        (saved / name).write_bytes(original)
        (saved / "predictor.json").write_bytes(record)


@pytest.mark.parametrize("own", [False, True])
def test_weights_of_several_floating_types(saved, own):
    """A layer cannot compute with them, which would show at the first prediction only."""
    names = [name for name, value in read_tensors(saved / "ensemble.safetensors").items() if value.is_floating_point()]
    network = digits(3).ensemble.module if own else None
    before = {path: path.read_bytes() for path in saved.iterdir()}
    for name in names:
        retyped(saved, "ensemble.safetensors", name, lambda value: value.half())
        with pytest.raises(ValueError, match=r"cannot be used together: \S+ is torch\.float\d\d, but \S+ is torch"):
            load(saved, network)
        for path, content in before.items():
            path.write_bytes(content)
    retyped(saved, "ensemble.safetensors", names[0], lambda value: value.to(torch.float8_e4m3fn))
    with pytest.raises(ValueError, match=r"cannot be used: \S+ is torch.float8"):
        load(saved, network)


SIZES = {"a side of a billion": [10**9, 10**9], "30,000 a side": [30_000, 30_000], "a long side": [1, 10**400]}


@pytest.mark.parametrize("size", SIZES)
def test_a_transform_to_a_size_beyond_all_memory(saved, size):
    about = {"size": SIZES[size], "crop": None, "mean": None, "std": None, "interpolation": "bilinear", "channels": 1}
    altered(saved, lambda record: record.update(version=3, transform=about))
    with pytest.raises(
        ValueError, match=r"^size must be at most 67,108,864 pixels, which [^\n]+ is not; make it smaller$"
    ):
        load(saved)


@pytest.mark.parametrize("crop", [1e-9, 5e-324])
def test_a_transform_that_crops_from_a_size_beyond_all_memory(saved, crop):
    about = {"size": [8, 8], "crop": crop, "mean": None, "std": None, "interpolation": "bilinear", "channels": 1}
    altered(saved, lambda record: record.update(version=3, transform=about))
    with pytest.raises(ValueError, match=r"^size / crop must be at most 67,108,864 pixels"):
        load(saved)


def test_deeply_nested_json(saved):
    (saved / "predictor.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"is damaged: its .* cannot be read"):
        load(saved)


@pytest.mark.parametrize("name", ["predictor.json", "ensemble.safetensors"])
def test_a_pipe_in_place_of_a_file_is_refused_at_once(saved, name):
    (saved / name).unlink()
    os.mkfifo(saved / name)
    with pytest.raises(ValueError, match=r"it has no predictor.json|not a regular file"):
        load(saved)


def test_the_command_line_says_it_in_a_sentence_with_code_2(saved, monkeypatch, capsys):
    altered(saved, lambda record: record["backbone"].update(name="wrn-10000000-1"))
    call, out = Caller(monkeypatch, capsys), saved.parent / "p.csv"
    assert "larger than any that can be built" in call.refused("predict", saved, "embedded", "--out", out)
    assert not out.exists()


HOSTILE_NAMES = ["\x00", "\ud800", "\u202e", "a\nb", '"}', "é" * 10_000, "<script>", "../../x", "", "9"]


def test_a_hostile_folder_becomes_an_onnx_file_of_plain_text_or_none(saved, tmp_path):
    """Names come back from the metadata as they were, NaN weights accept nothing, and a forged network is refused."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    altered(saved, lambda record: record.update(classes=HOSTILE_NAMES))
    weights = max(read_tensors(saved / "ensemble.safetensors").items(), key=lambda item: item[1].numel())[0]
    retyped(saved, "ensemble.safetensors", weights, lambda value: value * float("nan"))
    inputs = digits(3).test[:4]
    (file,) = load(saved).export(tmp_path / "out" / "d.onnx", inputs)
    onnx.checker.check_model(file)
    metadata = {entry.key: json.loads(entry.value) for entry in onnx.load(file).metadata_props}
    assert metadata["classes"] == HOSTILE_NAMES
    session = runtime.InferenceSession(file, providers=["CPUExecutionProvider"])
    accepted = session.run(["accepted"], {session.get_inputs()[0].name: inputs.numpy()})[0]
    assert not accepted.any()
    altered(saved, lambda record: record["backbone"].update(name="wrn-10000000-1"))
    with pytest.raises(InputError, match="larger than any"):
        load(saved).export(tmp_path / "other" / "d.onnx", inputs)
    assert not (tmp_path / "other").exists()
