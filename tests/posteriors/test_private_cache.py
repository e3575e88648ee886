"""Bytes that only this user can have written."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from calibrant.posteriors.native import private_cache

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users and modes")
CONTENT = bytes(range(256)) * 100


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    return private_cache.folder()


@pytest.fixture
def file(folder: Path) -> Path:
    private_cache.write("name", CONTENT)
    return folder / "name"


def test_what_was_written_is_read_and_nobody_else_can_enter(file: Path) -> None:
    assert private_cache.read("name") == CONTENT
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert private_cache.usable() == file.parent
    assert [path.name for path in file.parent.iterdir()] == ["name"]
    private_cache.write("name", b"anew")
    assert private_cache.read("name") == b"anew"


def test_nothing_is_there_at_first(folder: Path) -> None:
    assert private_cache.read("name") is None
    assert private_cache.usable() is None
    assert not folder.exists()


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_folder_that_others_can_enter_is_not_used(file: Path, mode: int) -> None:
    file.parent.chmod(mode)
    assert private_cache.read("name") is None
    assert private_cache.usable() is None
    private_cache.write("other", CONTENT)
    assert [path.name for path in file.parent.iterdir()] == ["name"]


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o602, 0o660])
def test_a_file_that_others_can_open_is_not_used(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert private_cache.read("name") is None


@pytest.mark.parametrize("which", ["folder", "file"])
def test_what_belongs_to_another_user_is_not_used(monkeypatch: pytest.MonkeyPatch, file: Path, which: str) -> None:
    of_another = (file.parent if which == "folder" else file).stat().st_ino
    true_status = os.fstat

    def told(descriptor: int) -> os.stat_result:
        status = true_status(descriptor)
        values = list(status)
        values[stat.ST_UID] += status.st_ino == of_another
        return os.stat_result(values)

    monkeypatch.setattr("os.fstat", told)
    assert private_cache.read("name") is None


def test_links_are_not_followed(file: Path, tmp_path: Path) -> None:
    aside = file.rename(file.with_name("aside"))
    file.symlink_to(aside)
    assert private_cache.read("aside") == CONTENT
    assert private_cache.read("name") is None
    elsewhere = file.parent.rename(tmp_path / "elsewhere")
    private_cache.folder().symlink_to(elsewhere, target_is_directory=True)
    assert private_cache.read("aside") is None
    private_cache.write("more", CONTENT)
    assert not (elsewhere / "more").exists()


@pytest.mark.parametrize("damaged", [b"", b"short", bytes(32) + CONTENT, CONTENT])
def test_a_damaged_file_is_as_if_it_were_not_there(file: Path, damaged: bytes) -> None:
    file.write_bytes(damaged)
    assert private_cache.read("name") is None


def test_one_altered_byte_is_noticed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert private_cache.read("name") is None


def test_what_is_no_file_or_too_large_is_not_read(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    os.mkfifo(file.with_name("pipe"), 0o600)
    assert private_cache.read("pipe") is None  # and nobody waits for it
    monkeypatch.setattr(private_cache, "_LARGEST", 1000)
    assert private_cache.read("name") is None


def test_a_write_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    private_cache.write("name", b"anew")
    monkeypatch.undo()
    assert [path.name for path in file.parent.iterdir()] == ["name"]


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", nowhere)
    private_cache.write("name", CONTENT)
    assert private_cache.read("name") is None
    assert private_cache.usable() is None


def test_without_owners_of_files_nothing_is_kept_and_nothing_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On Windows `os` has no `geteuid`: the module is imported and used there all the same."""
    monkeypatch.delattr("os.geteuid")
    specification = importlib.util.spec_from_file_location("private_cache_on_windows", private_cache.__file__)
    assert specification is not None
    assert specification.loader is not None
    there = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(there)
    there.write("name", CONTENT)
    assert there.folder().name == "kernels"
    assert there.read("name") is None
    assert there.usable() is None
    assert not (tmp_path / "cache").exists()


def _write_often(root: str, letter: bytes) -> None:
    os.environ["XDG_CACHE_HOME"] = root
    for _ in range(200):
        private_cache.write("name", letter * 10_000)
        content = private_cache.read("name")
        assert content is not None
        assert len(set(content)) == 1
        assert len(content) == 10_000


def test_processes_that_write_at_once_leave_one_whole_file(folder: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_often, args=(str(tmp_path / "cache"), bytes([k]))) for k in (65, 66)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [path.name for path in folder.iterdir()] == ["name"]
