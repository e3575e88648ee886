"""Kernels in C, for what no chain of tensor operations does in one pass.

They are compiled when they are first used, once per machine and version, and kept in the user's cache directory.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import logging
import tempfile
from importlib import resources
from pathlib import Path

from calibrant.posteriors.native import private_cache
from calibrant.posteriors.native.compiling import BuildError, compiled, target

__all__ = ["BuildError", "available", "library", "parallel"]


@functools.cache
def available() -> bool:
    """Whether the kernels can be used here; builds them if need be, and is asked once per process."""
    try:
        library()
    except (BuildError, OSError) as error:
        logging.getLogger(__name__).info("plain operations instead of kernels in C: %s", error)
        return False
    return True


@functools.cache
def library() -> ctypes.CDLL:
    """The C files of this folder for this processor: from the cache, or compiled, which takes a second."""
    files = resources.files("calibrant.posteriors.native").iterdir()
    sources = {file.name: file.read_bytes() for file in files if file.name.endswith((".c", ".h"))}
    text = {name: sources[name].decode() for name in sorted(sources)}
    name = hashlib.sha256(json.dumps([text, *target()]).encode()).hexdigest()
    kept = private_cache.read(name)
    if kept is not None:
        with contextlib.suppress(BuildError, AttributeError):  # of another system that shares the cache
            return _declared(_loaded(kept))
    built = compiled(sources)
    loaded = _declared(_loaded(built))
    private_cache.write(name, built)
    return loaded


@functools.cache
def parallel() -> int | None:
    """The address of GOMP_parallel in the OpenMP that PyTorch has loaded, so that its threads do the work; or None."""
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value
    except (AttributeError, OSError, TypeError):
        return None


def _loaded(content: bytes) -> ctypes.CDLL:
    """`content` as a library of this process, from a file that nobody else can reach and that is gone afterwards."""
    for place in (None, private_cache.usable()):  # a folder for temporary files may forbid programs
        with (
            contextlib.suppress(OSError),
            tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder,
        ):
            file = Path(folder) / "kernels.so"
            file.write_bytes(content)
            return ctypes.CDLL(str(file))
    raise BuildError(f"no program may run from {tempfile.gettempdir()}; set TMPDIR to a folder that allows it")


def _declared(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """With the types of the arguments, among them the number of threads and `parallel`."""
    pointer, real, size, threads = ctypes.c_void_p, ctypes.c_float, ctypes.c_size_t, (ctypes.c_uint, ctypes.c_void_p)
    loaded.calibrant_draw.restype = ctypes.c_double
    loaded.calibrant_draw.argtypes = [*[pointer] * 3, size, ctypes.c_uint64, pointer, real, real, *threads]
    loaded.calibrant_draw_backward.restype = None
    loaded.calibrant_draw_backward.argtypes = [
        *(pointer, pointer, pointer, real, pointer, pointer, pointer, size, pointer, real, real, *threads)
    ]
    loaded.calibrant_newton.restype = None
    loaded.calibrant_newton.argtypes = [*[pointer] * 5, size, pointer, *[real] * 8, *threads]
    return loaded
