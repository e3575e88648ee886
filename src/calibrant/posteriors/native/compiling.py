"""Compile C files for this processor, with whatever compiler there is."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Nothing here changes a result: no contraction, no reordering. Without errno and traps, loops with sqrt are vectors.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-pthread")
_HERE = "-march=native"  # not every compiler knows it
_PATIENCE = 120  # seconds


class BuildError(RuntimeError):
    """The kernels could not be built or loaded; the message says what to do."""


def compiled(sources: Mapping[str, bytes]) -> bytes:
    """The shared library that `$CC`, cc, gcc or clang makes of `sources`, C files and headers by name."""
    found = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if found is None:
        raise BuildError("fuse=True needs a C compiler; install gcc or clang, or leave fuse out")
    try:
        compiler = [found] if shutil.which(found) else shlex.split(found)
    except ValueError as error:
        raise BuildError(f"the C compiler {found} is no command ({error}); set CC to another") from None
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            for name, content in sources.items():
                (Path(folder) / name).write_bytes(content)
            files, linked = sorted(map(str, Path(folder).glob("*.c"))), Path(folder) / "kernels.so"
            build = [*compiler, *FLAGS, "-shared", *files, "-o", str(linked), "-lm"]
            try:
                _run([*build, _HERE])
            except BuildError:
                _run(build)
            return linked.read_bytes()
    except OSError as error:
        raise BuildError(f"the kernels cannot be built in {tempfile.gettempdir()}: {error.strerror}") from None


def target() -> list[str]:
    """What the result of `compiled` depends on beside the source: this processor, its system, the compiler's name."""
    system = [sys.platform, platform.machine(), *platform.libc_ver()]
    return [*FLAGS, _HERE, *system, str(sys.maxsize), _processor(), os.environ.get("CC", "")]


def _processor() -> str:
    """The model and the instructions of this processor, or failing that the name of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.processor()} {platform.node()}"
    told = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU ", "isa"))]
    return "\n".join(dict.fromkeys(told)) or platform.node()


def _run(command: list[str]) -> None:
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        subprocess.run(command, check=True, env={**os.environ, "LC_ALL": "C"}, timeout=_PATIENCE, **streams)
    except subprocess.TimeoutExpired:
        raise BuildError(f"the C compiler {command[0]} does not end; set CC to another") from None
    except OSError as error:
        raise BuildError(f"the C compiler {command[0]} cannot be run: {error.strerror}; set CC to another") from None
    except subprocess.CalledProcessError as error:
        reason = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr.strip())
        raise BuildError(f"the C compiler {command[0]} failed ({reason}); set CC to another") from None
