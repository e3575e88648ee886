"""What `make fuzz` takes for a hang: an input that computes or sleeps for long, never one that has to wait its turn."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from fuzz.watching import wait


def _started(code: str) -> int:
    return os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("while True: pass", "no answer after 0.5 s of the processor"),
        ("import time; time.sleep(60)", "no answer, asleep for 0.5 s"),
        ("import os; os.abort()", "ended by signal 6"),
        ("raise SystemExit(3)", "ended with code 3"),
        ("pass", None),
    ],
)
def test_what_is_wrong_with_a_process(code: str, said: str | None, tmp_path: Path) -> None:
    assert wait(_started(code), tmp_path / "input", 0.5) == said


def test_a_process_that_does_not_get_the_processor_is_waited_for(tmp_path: Path) -> None:
    pid = _started("pass")
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(2, os.kill, [pid, signal.SIGCONT]).start()
    assert wait(pid, tmp_path / "input", 0.5) is None


def test_every_input_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "input"
    spin = f"""
import pathlib, time
for _ in range(8):
    pathlib.Path({str(path)!r}).write_bytes(b"")
    until = time.process_time() + 0.4
    while time.process_time() < until: pass
"""
    began = time.monotonic()
    assert wait(_started(spin), path, 1.5) is None
    assert time.monotonic() - began > 3
