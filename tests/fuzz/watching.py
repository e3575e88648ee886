"""Wait for a process that reads one input after the other; a slow or busy machine does not make it fail."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def wait(pid: int, path: Path, hang: float) -> str | None:
    """Wait for the process, which writes its inputs to `path`; what went wrong with it, or None.

    It is ended if it spends more than `hang` seconds of the processor on one input, or if all its threads sleep that
    long: that it waits for the processor or the disk is not its fault.
    """
    reading = still = None
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == 0 else f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
        number = path.stat().st_mtime_ns if path.exists() else 0
        used, now = _used(pid), time.monotonic()
        if reading is None or reading[0] != number:
            reading = number, used
        if still is None or still[0] != (number, used) or not _asleep(pid):
            still = (number, used), now
        why = f" after {hang:g} s of the processor" if used - reading[1] > hang else ""
        why = why or (f", asleep for {hang:g} s" if now - still[1] > hang else "")
        if why:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return f"no answer{why}"
        time.sleep(0.05)


def _used(pid: int) -> float:
    """The seconds of the processor that the process has used."""
    fields = _stat(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _asleep(pid: int) -> bool:
    """Whether all threads of the process sleep."""
    states = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            states.append(_stat(thread / "stat")[0])
    return all(state == "S" for state in states)


def _stat(path: Path) -> list[str]:
    """What the system says of a process or thread, from its state on."""
    return path.read_text().rpartition(")")[2].split()
