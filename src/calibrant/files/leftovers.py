"""Temporary files and folders, and what a killed process left of them.

While a process writes, it holds a lock of the operating system on its temporary file or folder. The lock ends with the
process, however that ends, so one that nobody holds is a leftover. It is removed when its target is written again; a
folder that was moved aside is put back if it is the only one left. Where there are no such locks (Windows, some network
file systems), leftovers stay.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_PEEK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


@contextlib.contextmanager
def temporary(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file or folder beside `path`, held until the end and then removed, if it is still there."""
    with contextlib.ExitStack() as stack:
        made = _make(path.absolute(), folder)
        stack.enter_context(held(made, wait=True))
        while not made.exists():  # another process took it for a leftover before it was held
            made = _make(path.absolute(), folder)
            stack.enter_context(held(made, wait=True))
        stack.callback(remove, made)
        yield made


@contextlib.contextmanager
def held(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold the file or folder `path` inside; says whether that was possible, that is whether nobody else holds it."""
    try:
        number = os.open(path, _PEEK)
    except OSError:
        yield False
        return
    try:
        yield _lock(number, wait)
    finally:
        os.close(number)  # which ends the lock


def clear(path: Path) -> None:
    """Remove what processes that are gone left of writing `path`, and put back a folder that was moved aside."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{8}}\.(tmp|old)")
    with contextlib.suppress(OSError):
        for leftover in [entry for entry in path.absolute().parent.iterdir() if pattern.fullmatch(entry.name)]:
            _clear(leftover, path)


def remove(path: Path) -> None:
    """Remove a file or a folder, whichever it is, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _clear(leftover: Path, path: Path) -> None:
    with held(leftover) as ours:
        if not ours or leftover.is_symlink():
            return
        if leftover.suffix == ".old" and leftover.is_dir() and not path.exists():
            leftover.rename(path.resolve())
        else:
            remove(leftover)


def _make(path: Path, folder: bool) -> Path:
    name = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    if folder:
        name.mkdir(parents=True)
    else:
        name.touch(exist_ok=False)
    return name


def _lock(number: int, wait: bool) -> bool:
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
