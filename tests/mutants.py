"""Mutation testing: how many small faults, planted in the code of a room at random, the tests of that room notice.

    python tests/mutants.py                      # all rooms, 100 mutants each: hours
    python tests/mutants.py kernels --sample 20

It ends with exit code 1 where the tests of a room killed less than `--least` of a full sample. `mutant_survivors.yaml`
beside it may say why a survivor is none to worry about, by the mutant's name:

    0123456789abcdef: it is only faster

A mutant is the package with one operator swapped, one number or condition changed, or one return value removed. It is
killed if a test of its room fails or does not end in time (`mutant_trials.py`). What was tried is kept in `--log`, one
line of JSON per mutant, so that the next call resumes; the same seed draws the same mutants as long as the code is the
same.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml
from mutant_trials import Watched, fails, watch
from scipy.stats import binomtest

ROOT = Path(__file__).parents[1]
SOURCE = Path("src/calibrant")
SURVIVORS, FULL = Path(__file__).with_name("mutant_survivors.yaml"), 100
CERTIFICATES = ("selective/certificate.py", "selective/guarantees.py")
# Room: (its files below the package, the tests that must notice).
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "kernels": (("kernels.py",), ("tests/test_kernels.py",)),
    "losses": (("losses",), ("tests/losses",)),
    "metrics": (("metrics",), ("tests/metrics",)),
    "calibrators": (("calibrators",), ("tests/calibrators",)),
    "detectors": (("detectors",), ("tests/detectors",)),
    "selective": (("selective",), ("tests/selective",)),
    "certificates": (CERTIFICATES, ("tests/selective/test_certificate.py", "tests/selective/test_guarantees.py")),
}
COPIED = ("src", "tests", "benchmarks", "docs", "examples", "pyproject.toml", "README.md")
COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.MatMult: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One fault: the file, the line, what was changed, and the text of the whole file with it."""

    file: str
    line: int
    change: str
    text: str
    lines: tuple[int, ...] = ()
    """Those of the statement, or of the head of the compound statement, that it is in."""

    @property
    def name(self) -> str:
        """Equal for equal faults in equal code."""
        return hashlib.sha256(f"{self.file}\n{self.text}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant."""

    room: str
    name: str
    file: str
    line: int
    change: str
    killed: bool
    how: str
    seconds: float


def places(text: str) -> list[tuple[int, int]]:
    """Where a file can be changed: (the number of the node, the number of the change to it)."""
    nodes = enumerate(_code(ast.parse(text)))
    return [(index, number) for index, node in nodes for number, _ in enumerate(_alterations(node))]


def planted(file: str, text: str, index: int, number: int) -> Mutant:
    """The mutant at one of the `places`."""
    tree = ast.parse(text)
    node = list(_code(tree))[index]
    change, altered = list(_alterations(node))[number]
    lines = _lines(tree, node)
    _replace(tree, node, altered)
    return Mutant(file, node.lineno, change, ast.unparse(ast.fix_missing_locations(tree)) + "\n", lines)


def _lines(tree: ast.AST, node: ast.AST) -> tuple[int, ...]:
    """The lines of the innermost statement around `node`, without the statements inside that statement."""
    around = [one for one in ast.walk(tree) if isinstance(one, ast.stmt) and any(node is x for x in ast.walk(one))]
    least = min(around, key=lambda one: (one.end_lineno or one.lineno) - one.lineno)
    inner = [one.lineno for one in ast.iter_child_nodes(least) if isinstance(one, ast.stmt)]
    last = min(inner) - 1 if inner else least.end_lineno or least.lineno
    return tuple(range(least.lineno, max(last, least.lineno) + 1))


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Expressions and statements that run, depth first; no annotations, overloads or docstrings, nor what is raised."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list") or isinstance(node, ast.Raise):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            if isinstance(child, (ast.expr, ast.stmt)):
                yield child
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _code(child)


def _alterations(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """(what is changed, the changed node)."""
    before = copy.deepcopy(node)
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            altered = copy.deepcopy(node)
            altered.ops[place] = COMPARISONS[type(operator)]()
            yield _named(before, altered)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        altered = copy.deepcopy(node)
        altered.op = ARITHMETIC[type(node.op)]()
        yield _named(before, altered)
    elif isinstance(node, ast.BoolOp):
        altered = copy.deepcopy(node)
        altered.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        yield _named(before, altered)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
        yield _named(before, node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = not node.value if isinstance(node.value, bool) else node.value + 1
        yield _named(before, ast.Constant(value))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        altered = copy.deepcopy(node)
        altered.test = ast.UnaryOp(ast.Not(), altered.test)
        yield f"{ast.unparse(before.test)} -> not (...)", altered
    elif isinstance(node, ast.Return) and node.value is not None:
        yield _named(before, ast.Return(ast.Constant(None)))


def _named(before: ast.AST, after: ast.AST) -> tuple[str, ast.AST]:
    return f"{ast.unparse(before)} -> {ast.unparse(after)}", after


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            if value is old:
                setattr(node, field, ast.copy_location(new, old))
            elif isinstance(value, list) and any(child is old for child in value):
                value[[child is old for child in value].index(True)] = ast.copy_location(new, old)


def files_of(room: str) -> list[str]:
    """The files of a room, relative to the tree; certificates are a room of their own."""
    paths = [ROOT / SOURCE / part for part in ROOMS[room][0]]
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    named = [str(file.relative_to(ROOT)) for file in files]
    return [name for name in named if room == "certificates" or not name.endswith(CERTIFICATES)]


def drawn(room: str, sample: int, seed: int) -> list[Mutant]:
    """`sample` mutants of a room, each equally likely, in the order of the draw."""
    texts = {file: (ROOT / file).read_text() for file in files_of(room)}
    every = [(file, text, *place) for file, text in texts.items() for place in places(text)]
    return [planted(*one) for one in random.Random(f"{seed} {room}").sample(every, min(sample, len(every)))]


def examine(room: str, mutants: Sequence[Mutant], tree: Path, log: Path) -> list[Verdict]:
    """The verdict on every mutant; those in the log are not tried again."""
    known, targets = _read(log), [*ROOMS[room][1], *files_of(room)]
    watched = None
    for number, mutant in enumerate(mutants, 1):
        if (room, mutant.name) not in known:
            watched = watched or watch(tree, targets, files_of(room))
            known[room, mutant.name] = verdict = _try(room, mutant, tree, watched, targets)
            with log.open("a") as file:
                file.write(json.dumps(asdict(verdict)) + "\n")
        verdict = known[room, mutant.name]
        state = "killed" if verdict.killed else "SURVIVED"
        print(f"{room} {number}/{len(mutants)} {state}: {mutant.file}:{mutant.line}: {mutant.change}", flush=True)
    return [known[room, mutant.name] for mutant in mutants]


def _try(room: str, mutant: Mutant, tree: Path, watched: Watched, targets: Sequence[str], spare: float = 10) -> Verdict:
    target, limit = tree / mutant.file, 3 * watched.cpu + spare
    whole, began = target.read_text(), time.monotonic()
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*"):
        compiled.unlink()  # it goes by whole seconds and sizes, so it could stand for the mutant
    try:
        target.write_text(mutant.text)
        tests = watched.chosen(mutant.file, mutant.lines)
        killed, how = fails(tree, tests, limit) if tests else (False, "")
        if not killed:
            killed, how = fails(tree, targets, limit)
    finally:
        target.write_text(whole)
    seconds = round(time.monotonic() - began, 1)
    return Verdict(room, mutant.name, mutant.file, mutant.line, mutant.change, killed, how, seconds)


def _read(log: Path) -> dict[tuple[str, str], Verdict]:
    lines = log.read_text().splitlines() if log.exists() else []
    verdicts = [Verdict(**json.loads(line)) for line in lines]
    return {(verdict.room, verdict.name): verdict for verdict in verdicts}


def reasons(path: Path) -> dict[str, str]:
    """Why survivors are none to worry about, by name."""
    found = yaml.load(path.read_text(), yaml.BaseLoader) if path.exists() else None
    return {str(name): str(reason) for name, reason in (found or {}).items()}


def too_few(verdicts: Sequence[Verdict], sample: int, least: float) -> bool:
    """Whether less than `least` of a full `sample` was killed; of a smaller one, that is not decided."""
    return len(verdicts) >= sample >= FULL and sum(verdict.killed for verdict in verdicts) < least * len(verdicts)


def tell(room: str, verdicts: Sequence[Verdict], known: Mapping[str, str]) -> None:
    """The killed share with its 95 % Wilson interval, and the survivors with the reasons that are `known`."""
    killed = sum(verdict.killed for verdict in verdicts)
    low, high = binomtest(killed, len(verdicts)).proportion_ci(method="wilson")
    share = killed / len(verdicts)
    print(f"\n{room}: {killed} of {len(verdicts)} killed, {share:.1%} (95 % interval {low:.1%} to {high:.1%})")
    for verdict in verdicts:
        if not verdict.killed:
            about = f"{verdict.name} {verdict.file}:{verdict.line}: {verdict.change}"
            print(f"  survivor: {about} ({known.get(verdict.name, 'no reason yet')})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", help=f"of {', '.join(ROOMS)}; default: all")
    parser.add_argument("--sample", type=int, default=100, help="mutants per room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--least", type=float, default=0.85, help="share of a full sample to be killed; 0: any")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args()
    unknown = sorted({*options.rooms} - {*ROOMS})
    if unknown:
        parser.error(f"there is no room {unknown[0]}; choose from {', '.join(ROOMS)}")
    found = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for name in COPIED:
            copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copied(ROOT / name, tree / name)
        for room in options.rooms or ROOMS:
            found[room] = examine(room, drawn(room, options.sample, options.seed), tree, options.log)
    for room, verdicts in found.items():
        tell(room, verdicts, reasons(SURVIVORS))
    short = [room for room, verdicts in found.items() if too_few(verdicts, options.sample, options.least)]
    if short:
        raise SystemExit(f"\nless than {options.least:.0%} killed: {', '.join(short)}")


if __name__ == "__main__":
    main()
