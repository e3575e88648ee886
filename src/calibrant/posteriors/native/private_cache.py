"""Bytes that only this user can have written: what is built once per machine, and run as a program.

They lie in a folder of the user's cache directory that belongs to the user and that nobody else can enter, in files of
which the same holds, each behind its SHA-256. Whatever is not so is as if it were not there; nothing here raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

_DIGEST = 32  # bytes of a SHA-256
_LARGEST = 1 << 26
_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd  # not so on Windows


def folder() -> Path:
    """Where they lie: one folder per user, also where several users share a cache directory."""
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "calibrant" / (f"kernels-{os.geteuid()}" if _HAS_OWNERS else "kernels")


def read(name: str) -> bytes | None:
    """What was written under `name`, whole; None if it was not, or if somebody else could have written it."""
    with contextlib.suppress(OSError), _opened() as inside:
        if inside is None:
            return None
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
        with os.fdopen(file, "rb") as stream:
            status = os.fstat(file)
            if not (stat.S_ISREG(status.st_mode) and _private(status) and status.st_size <= _LARGEST):
                return None
            digest, content = stream.read(_DIGEST), stream.read()
        return content if hashlib.sha256(content).digest() == digest else None
    return None


def write(name: str, content: bytes) -> None:
    """Keep `content` under `name`, whole or not at all, whoever else does so now; where that cannot be, not."""
    if not _HAS_OWNERS:
        return
    with contextlib.suppress(OSError, RuntimeError):
        folder().parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError, RuntimeError):
        folder().mkdir(mode=0o700)
    with contextlib.suppress(OSError), _opened() as inside:
        if inside is None:
            return
        temporary = f".{uuid4().hex}"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=inside)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, name, src_dir_fd=inside, dst_dir_fd=inside)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=inside)
            raise


def usable() -> Path | None:
    """The folder, if it is there and nobody else can enter it."""
    with contextlib.suppress(OSError), _opened() as inside:
        return None if inside is None else folder()
    return None


@contextlib.contextmanager
def _opened() -> Iterator[int | None]:
    """The folder as a descriptor, so that nobody can put another in its place; None if it is not private."""
    if not _HAS_OWNERS:
        yield None
        return
    try:
        inside = os.open(folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except RuntimeError:  # a user without a home
        yield None
        return
    try:
        yield inside if _private(os.fstat(inside)) else None
    finally:
        os.close(inside)


def _private(status: os.stat_result) -> bool:
    """Whether it belongs to this user, and nobody else may read, write or enter it."""
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077
