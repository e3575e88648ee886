"""The mutants that `make mutants` plants: every kind of fault, valid code, and nothing outside what runs."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import ROOMS, Verdict, drawn, files_of, places, planted, reasons, tell, too_few

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


def verdicts(killed: int, size: int) -> list[Verdict]:
    return [Verdict("kernels", f"{one:016x}", "kernels.py", 1, "1 -> 2", one < killed, "", 1.0) for one in range(size)]


def test_a_full_sample_must_be_killed_by_the_goal() -> None:
    assert too_few(verdicts(84, 100), 100, 0.85)
    assert not too_few(verdicts(85, 100), 100, 0.85)
    assert not too_few(verdicts(0, 100), 100, 0.0)
    assert not too_few(verdicts(0, 20), 20, 0.85)  # a small sample decides nothing


def test_survivors_are_told_with_their_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "survivors.yaml"
    assert reasons(path) == {}
    path.write_text("0000000000000000: it is only faster\n")
    tell("kernels", verdicts(0, 2), reasons(path))
    lines = capsys.readouterr().out.splitlines()[-2:]
    assert [line.partition(" (")[2] for line in lines] == ["it is only faster)", "no reason yet)"]


TOY = """
LIMIT = 3

def shown(x):
    total = x + 1
    if total > LIMIT:
        while x > 0:
            x = x - 1
        return "many"
    return total
"""
TESTS = """
import pytest
import toy

@pytest.fixture(scope="module")
def few():
    return toy.shown(1)

def test_first(few):
    assert few

def test_few(few):
    assert few == 2

def test_many():
    assert toy.shown(9) == "many"

@pytest.mark.parametrize("limit", [toy.LIMIT])
def test_case(limit):  # whose name a fault changes
    assert limit
"""
EXAMINED = """
import json, sys
from pathlib import Path
import mutants
from mutant_trials import watch

tree, text = Path(sys.argv[1]), Path(sys.argv[1], "src/toy.py").read_text()
watched = watch(tree, ["tests"], ["src/toy.py"])
made = [mutants.planted("src/toy.py", text, *place) for place in mutants.places(text)]
chosen = {mutant.change: watched.chosen(mutant.file, mutant.lines) for mutant in made}
tried = [mutants._try("toy", mutant, tree, watched, ["tests"], spare=2) for mutant in made]
assert Path(tree, "src/toy.py").read_text() == text
print(json.dumps({one.change: [one.killed, one.how, chosen[one.change]] for one in tried}))
"""


def test_a_fault_is_given_to_the_tests_that_run_it_and_then_to_all(tmp_path: Path) -> None:
    """A loop that never ends, a value that a fixture keeps for another test, faults that change a name or nothing."""
    for name, text in {"src/toy.py": TOY, "tests/test_toy.py": TESTS}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    markers = "markers = ['slow', 'cluster']"
    (tmp_path / "pyproject.toml").write_text(f"[tool.pytest.ini_options]\npythonpath = ['src']\n{markers}\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", EXAMINED, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    unchanged = {"3 -> 4", "total > LIMIT -> total >= LIMIT", "x > 0 -> not (...)", "x > 0 -> x >= 0", "0 -> 1"}
    assert {change for change, (killed, *_) in found.items() if not killed} == {*unchanged, "1 -> 2"}
    assert found["x + 1 -> x - 1"][1].startswith("FAILED tests/test_toy.py::test_f")
    assert found["x - 1 -> x + 1"][1].startswith("more than")
    files = {change: {name.partition("::")[2] for name in tests} for change, (_, _, tests) in found.items()}
    assert files["3 -> 4"] == files["x + 1 -> x - 1"] == {"test_first", "test_few", "test_many", "test_case[3]"}
    assert files["x - 1 -> x + 1"] == {"test_many"}
