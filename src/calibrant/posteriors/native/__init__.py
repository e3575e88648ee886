"""Kernels in C, for what no chain of tensor operations does in one pass; built when they are first used."""

from __future__ import annotations

import ctypes
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

# The object alone is built with fast mathematics: linked so, a library would change the rounding of the whole process.
_COMPILE = ("-O3", "-ffast-math", "-fPIC", "-c")
_HERE = "-march=native"  # not every compiler knows it


class BuildError(RuntimeError):
    """The kernels could not be built or loaded; the message says what to do."""


@functools.cache
def library() -> ctypes.CDLL:
    """`draw.c`, compiled for this processor with `$CC`, cc, gcc or clang: a second, once a process."""
    found = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if found is None:
        raise BuildError("fuse=True needs a C compiler; install gcc or clang, or leave fuse out")
    compiler = [found] if shutil.which(found) else shlex.split(found)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, compiled, linked = (Path(folder) / name for name in ("draw.c", "draw.o", "draw.so"))
        source.write_bytes((resources.files("calibrant.posteriors.native") / "draw.c").read_bytes())
        build = [*compiler, *_COMPILE, str(source), "-o", str(compiled)]
        try:
            _run([*build, _HERE])
        except BuildError:
            _run(build)
        _run([*compiler, "-shared", str(compiled), "-o", str(linked), "-lm"])
        try:
            loaded = ctypes.CDLL(str(linked))
        except OSError:
            where = tempfile.gettempdir()
            raise BuildError(f"no program may run from {where}; set TMPDIR to a folder that allows it") from None
    pointer, real = ctypes.c_void_p, ctypes.c_float
    loaded.calibrant_draw.restype = ctypes.c_double
    loaded.calibrant_draw.argtypes = [*[pointer] * 3, ctypes.c_size_t, ctypes.c_uint64, pointer, real, real]
    loaded.calibrant_draw_backward.restype = None
    loaded.calibrant_draw_backward.argtypes = [
        *(pointer, pointer, pointer, real, pointer, pointer, pointer, ctypes.c_size_t, pointer, real, real)
    ]
    return loaded


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    except OSError as error:
        raise BuildError(f"the C compiler {command[0]} cannot be run: {error.strerror}; set CC to another") from None
    except subprocess.CalledProcessError as error:
        reason = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr.strip())
        raise BuildError(f"the C compiler {command[0]} failed ({reason}); set CC to another") from None
