"""Damaged files of every kind that we read: the result, or one of our sentences; never another error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fuzz.readers import READERS, SENTENCES, Reader

from calibrant.deploy.saving import load
from calibrant.runs.stages import StoredStage

EVERY = [pytest.param(reader, id=name) for name, reader in READERS.items()]
CONTENT = {"cifar-pickle", "spec"}  # readers of bytes, which somebody else has read from a file


def damages(content: bytes) -> Iterator[tuple[str, bytes]]:
    """(what was done, the damaged content)."""
    yield "emptied", b""
    yield "cut to one byte", content[:1]
    for share in (0.25, 0.5, 0.75):
        yield f"cut at {share:.0%}", content[: int(share * len(content))]
    yield "cut by one byte", content[:-1]
    yield "with a byte more", content + b"x"
    yield "twice", content * 2
    yield "zeroed", bytes(len(content))
    for place in sorted({int(share / 16 * len(content)) for share in range(16)}):
        for bit in (1, 0x80):
            flipped = bytes([content[place] ^ bit])
            yield f"with bit {bit} of byte {place} flipped", content[:place] + flipped + content[place + 1 :]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", EVERY)
def test_a_damaged_file_is_read_or_refused_in_a_sentence(reader: Reader, tmp_path: Path) -> None:
    path, faults = tmp_path / f"input{reader.suffix}", []
    for seed in reader.seeds:
        for what, content in damages(seed.read_bytes()):
            path.write_bytes(content)
            try:
                reader.read(path)
            except SENTENCES:
                continue
            except Exception as error:
                faults.append(f"{seed.name} {what}: {type(error).__name__}: {error}")
    assert not faults


@pytest.mark.parametrize("reader", READERS.values(), ids=lambda reader: reader.name)
def test_whole_files_are_read(reader: Reader, tmp_path: Path) -> None:
    for seed in reader.seeds:
        reader.read(Path(shutil.copy(seed, tmp_path / f"input{reader.suffix}")))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in READERS if name not in CONTENT])
def test_a_folder_in_place_of_a_file_is_refused(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    path = tmp_path / f"input{reader.suffix}"
    path.mkdir()
    if name in ("data-csv", "data-npz", "data-parquet", "image"):
        (path / "x.txt").touch()
    with pytest.raises(SENTENCES):
        reader.read(path)


def refused_or_equal(path: Path, read: Callable[[], object]) -> None:
    """Of a file under a checksum, no damage gives another result."""
    whole, content = read(), path.read_bytes()
    for what, damaged in damages(content):
        path.write_bytes(damaged)
        try:
            assert read() == whole, what
        except SENTENCES:
            continue
    path.write_bytes(content)
    path.unlink()
    path.mkdir()
    with pytest.raises(SENTENCES):
        read()


@pytest.mark.parametrize("name", ["predictor.json", "ensemble.safetensors", "outliers.safetensors"])
def test_no_damage_changes_a_predictor(name: str, tmp_path: Path) -> None:
    from fuzz.readers import SAVED

    folder = shutil.copytree(SAVED, tmp_path / "predictor")

    def read() -> object:
        made = load(folder)
        return {key: value.tolist() for key, value in made.ensemble.module.state_dict().items()}, str(made.rule)

    refused_or_equal(folder / name, read)


def test_no_damage_changes_the_tensors_of_a_stage(tmp_path: Path) -> None:
    import torch

    stage = StoredStage(tmp_path, "fit-FNN", {"rate": 0.1})
    stage.finish({"loss": 0.5}, {"model.safetensors": {"w": torch.arange(3.0)}})
    refused_or_equal(stage.path / "model.safetensors", lambda: stage.tensors("model.safetensors")["w"].tolist())
