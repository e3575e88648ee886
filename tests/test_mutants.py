"""The mutants that `make mutants` plants: every kind of fault, valid code, and nothing outside what runs."""

from __future__ import annotations

import ast

import pytest
from mutants import ROOMS, drawn, files_of, places, planted

CODE = '''
"""A doctest >>> 1 + 1"""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 1

def limited(x: "1 + 1", most: int = 3) -> bool:
    """Not 1 either."""
    if x is None and not most:
        raise ValueError(f"x is missing {1 + 1}")
    total = -x * most
    return total < 2.5
'''


def test_every_kind_of_fault_is_planted_where_code_runs() -> None:
    made = [planted("limited.py", CODE, *place) for place in places(CODE)]
    assert [mutant.change for mutant in made] == [
        "3 -> 4",
        "x is None and (not most) -> not (...)",
        "x is None and (not most) -> x is None or not most",
        "x is None -> x is not None",
        "not most -> most",
        "-x * most -> -x / most",
        "-x -> x",
        "return total < 2.5 -> return None",
        "total < 2.5 -> total <= 2.5",
        "2.5 -> 3.5",
    ]
    assert len({mutant.name for mutant in made}) == len(made)
    unchanged = ast.dump(ast.parse(CODE))
    assert all(ast.dump(ast.parse(mutant.text)) != unchanged for mutant in made)


def test_a_draw_is_the_same_for_the_same_seed() -> None:
    names = [[mutant.name for mutant in drawn("kernels", 10, seed)] for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    assert len(set(names[0])) == 10


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_have_files_and_share_none(room: str) -> None:
    others = {file for other in ROOMS if other != room for file in files_of(other)}
    assert files_of(room)
    assert not others & {*files_of(room)}
