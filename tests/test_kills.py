"""A command that was killed at any moment and is started again ends with the same bytes as one that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kills import COMMANDS, Killer, prepare, snapshot


@pytest.fixture(scope="module")
def killer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killer]:
    folder = tmp_path_factory.mktemp("kills")
    return Killer(prepare(folder / "whole"), folder)


def test_leftovers_are_compared(tmp_path: Path) -> None:
    for name in ("made.csv", ".made.csv.0123abcd.tmp", "made/.made.csv.0123abcd.tmp", ".made.0123abcd.tmp/x", "other"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert len(snapshot(tmp_path)) == 4


@pytest.mark.parametrize(
    ("name", "seed"), [("train", 0), ("train", 1), ("sweep", 2), ("predict parquet", 4), ("audit", 6)]
)
def test_a_killed_command_ends_as_an_undisturbed_one(killer: Killer, name: str, seed: int) -> None:
    killer.check(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "run"])
def test_fifty_kills(killer: Killer, name: str) -> None:
    """Five each of the commands that train, and four of each other."""
    for seed in range(100, 105 if name in ("train", "sweep") else 104):
        print(killer.check(name, seed))
