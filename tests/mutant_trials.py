"""Runs the tests of a room in a process that is forked from one with the heavy modules imported.

The first run notes how long every test takes, which lines it runs and which modules the tests need. A mutant is then
given to the tests that run its lines, the quick ones first; if none of them fails, to all tests of the room. So no
mutant survives because a test was left out.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Hypothesis was imported before the fork, so pytest cannot rewrite its assertions, and says so.
IMPORTED = "ignore:Module already imported so cannot be rewritten:pytest.PytestAssertRewriteWarning"
OPTIONS = ["-x", "-q", "-W", IMPORTED, "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not cluster"]
# They start threads, which a fork does not copy.
NOT_BEFORE_A_FORK = {"pyarrow", "ray"}
KILLED = {1, 2}
"""pytest's codes of tests that fail, and of modules that cannot be imported."""
NOT_COLLECTED = 4
"""pytest's code where a test that is asked for is not there, as where a fault changes the names of its cases."""
BROKEN = 70
Lines = dict[str, dict[int, list[str]]]


@dataclass
class Watched:
    """What a run without any mutant has shown."""

    seconds: dict[str, float] = field(default_factory=dict)
    """The time of each test."""
    lines: Lines = field(default_factory=dict)
    """The tests that run a line, by file; what runs before a test of a file begins is named by the file alone."""
    modules: list[str] = field(default_factory=list)
    cpu: float = 0.0

    def chosen(self, file: str, numbers: Iterable[int]) -> list[str]:
        """The tests that run one of the lines `numbers` of `file`, the quick ones first; all for what runs earlier."""
        ran = {name for number in numbers for name in self.lines.get(file, {}).get(number, ())}
        every = "" in ran
        tests = [name for name in self.seconds if every or name in ran or name.partition("::")[0] in ran]
        return sorted(tests, key=lambda name: self.seconds[name])


class Watcher:
    """The plugin of pytest that notes it, by coverage's contexts."""

    def __init__(self, tree: Path, files: Collection[str]) -> None:
        import coverage

        self.tree, self.files, self.watched = tree, files, Watched()
        self.coverage = coverage.Coverage(
            data_file=None, include=[str(tree / file) for file in files], config_file=False
        )
        self.coverage.start()

    def pytest_runtest_setup(self, item: Any) -> None:
        self.coverage.switch_context(item.nodeid.partition("::")[0])

    def pytest_runtest_call(self, item: Any) -> None:
        self.coverage.switch_context(item.nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.watched.seconds[report.nodeid] = self.watched.seconds.get(report.nodeid, 0.0) + report.duration

    def _inside(self, module: Any) -> bool:
        return str(getattr(module, "__file__", None) or "").startswith(str(self.tree))

    def save(self, path: Path) -> None:
        """For the process that waits for this one."""
        self.coverage.stop()
        data = self.coverage.get_data()
        for file in self.files:
            found = data.contexts_by_lineno(str(self.tree / file))
            self.watched.lines[file] = {number: list(names) for number, names in found.items()}
        outside = [name for name, module in sys.modules.items() if not self._inside(module)]
        self.watched.modules = sorted(name for name in outside if name.partition(".")[0] not in NOT_BEFORE_A_FORK)
        path.write_text(json.dumps(self.watched.__dict__))


def watch(tree: Path, targets: Sequence[str], files: Collection[str]) -> Watched:
    """Run `targets` in `tree` without any mutant, and import into this process what they needed."""
    path = tree / "watched.json"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def run() -> int:
        watcher = Watcher(tree, files)
        code = _pytest(tree, targets, [watcher])
        watcher.save(path)
        return code

    code, printed = forked(tree, run, cpu=3600)
    if code != 0:
        raise SystemExit(f"the tests fail without any mutant:\n{printed[-3000:]}")
    watched = Watched(**json.loads(path.read_text()))
    watched.lines = {file: {int(n): names for n, names in of.items()} for file, of in watched.lines.items()}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    watched.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for name in watched.modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    broken, how = fails(tree, targets, 3600)
    if broken:
        raise SystemExit(f"the tests fail in a fork without any mutant: {how}")
    return watched


def fails(tree: Path, tests: Sequence[str], cpu: float) -> tuple[bool, str]:
    """Whether `tests` fail in `tree`, and how; more than `cpu` seconds of computing is a failure, too."""

    def run() -> int:
        sys.dont_write_bytecode = True
        return _pytest(tree, tests, [])

    code, printed = forked(tree, run, cpu=cpu)
    if code == -signal.SIGXCPU:
        return True, f"more than {cpu:.0f} s"
    if code == NOT_COLLECTED and all("::" in name for name in tests):
        return False, "not collected"
    if code > 0 and code not in KILLED:
        raise SystemExit(f"the tests were not run (code {code}):\n{printed[-3000:]}")
    failed = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return code != 0, failed[0][:200] if failed else f"exit code {code}"


def forked(tree: Path, run: Callable[[], int], cpu: float) -> tuple[int, str]:
    """The exit code of `run` in a child process in the folder `tree`, and what it printed."""
    log = tree / "printed.txt"
    pid = os.fork()
    if pid == 0:
        code = BROKEN
        try:
            code = _child(tree, run, log, cpu)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    until, status = time.monotonic() + 60 * (cpu + 10), None
    while status is None and time.monotonic() < until:
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # it, if it waits for ever, and what it has started
    if status is None:
        os.waitpid(pid, 0)
        return -signal.SIGXCPU, ""
    return os.waitstatus_to_exitcode(status), log.read_text(errors="replace")


def _child(tree: Path, run: Callable[[], int], log: Path, cpu: float) -> int:
    os.setsid()
    os.chdir(tree)
    with log.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    resource.setrlimit(resource.RLIMIT_CPU, (round(cpu) + 1, round(cpu) + 5))
    sys.path[:0] = [str(tree / "src"), str(tree)]
    os.environ["PYTHONPATH"] = str(tree / "src")
    return run()


def _pytest(tree: Path, tests: Sequence[str], plugins: list[Any]) -> int:
    import pytest

    return int(pytest.main([*OPTIONS, "--rootdir", str(tree), "-c", str(tree / "pyproject.toml"), *tests], plugins))
