"""The house: every room says what it may import, imports point one way, and a name stands for one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import calibrant

SOURCE = Path(calibrant.__file__).parent
ROOMS = {
    path.stem: [path] if path.is_file() else sorted(path.rglob("*.py"))
    for path in SOURCE.iterdir()
    if (path.suffix == ".py" or (path / "__init__.py").is_file()) and not path.name.startswith("__")
}
MODULES = sorted(SOURCE.rglob("*.py"))


def allowed(room: str) -> set[str]:
    """What the docstring of `room` says that it may import."""
    first = ROOMS[room][0] if len(ROOMS[room]) == 1 else SOURCE / room / "__init__.py"
    line = re.search(r"^May import: ([^.]*)\.$", ast.get_docstring(ast.parse(first.read_text())) or "", re.M | re.S)
    assert line is not None, f"{room} does not say what it may import"
    return set() if line[1] == "nothing of ours" else set(re.split(r",\s+", line[1]))


def imported(room: str) -> set[str]:
    """The other rooms that the files of `room` import, anywhere in them."""
    found = set()
    for file in ROOMS[room]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module == "calibrant":
                names += [f"calibrant.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names.append(str(node.module))
            found |= {name.split(".")[1] for name in names if name.startswith("calibrant.")}
    return found & set(ROOMS) - {room}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_its_docstring_says_and_no_more(room: str) -> None:
    assert imported(room) == allowed(room)


def test_imports_go_one_way() -> None:
    order = list(TopologicalSorter({room: imported(room) for room in ROOMS}).static_order())  # refuses a cycle
    assert order[-1] == "cli"
    assert {room for room in ROOMS if "studies" in imported(room)} == {"cli"}


def test_the_house_is_small() -> None:
    assert len(ROOMS) <= 23


def test_no_two_files_have_one_name() -> None:
    """But for `base`, the contract of a room, and for commands, which are called as what they do."""
    homes = defaultdict(list)
    for file in MODULES:
        if file.stem not in ("__init__", "__main__", "base") and file.parent.name != "cli":
            homes[file.stem].append(str(file.relative_to(SOURCE)))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_no_two_classes_have_one_name() -> None:
    homes = defaultdict(list)
    for file in MODULES:
        for node in ast.parse(file.read_text()).body:
            target = node.target if isinstance(node, ast.AnnAssign) else None
            target = node.targets[0] if isinstance(node, ast.Assign) else target
            name = target.id if isinstance(target, ast.Name) and re.match(r"[A-Z]\w*[a-z]", target.id) else None
            name = node.name if isinstance(node, ast.ClassDef) else name
            if name is not None and not name.startswith("_"):
                homes[name].append(str(file.relative_to(SOURCE)))
    assert not {name: files for name, files in homes.items() if len(files) > 1}
