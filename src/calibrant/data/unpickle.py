"""A reader of CIFAR's pickled batches that admits arrays and plain containers only.

A pickle is a program: it may name any function of any module and have it called. Here the few names that NumPy's arrays
and Python's strings need are bound to inert stand-ins of our own, and every other name is refused, so nothing that the
file says is imported or run. What the file holds is counted before and after it is read, so that a small one cannot
grow large: at most 2,097,152 instructions, tuples at most 100 levels deep (`calibrant.files.pickle_bounds`), and
1,048,576 values in the result, each counted as often as it occurs.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import InputError
from calibrant.data.arrays import DataError
from calibrant.files.pickle_bounds import check_pickle

MOST_VALUES = 2**20


class _ForeignNameError(Exception):
    """The pickle names something that is neither an array nor a plain container."""


class _Dtype:
    """Stands in for `numpy.dtype(code, align, copy)` and the state (version, byte order, ...) set on it."""

    def __init__(self, code: str | bytes, *_flags: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else code
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self.order = order.decode("ascii") if isinstance(order, bytes) else order

    def resolve(self) -> np.dtype[Any]:
        dtype = np.dtype(self.code).newbyteorder("=" if self.order == "|" else self.order)  # type: ignore[arg-type]
        if dtype.kind not in "biuf":
            raise InputError(f"an array of {dtype} instead of numbers")
        return dtype


class _Array:
    """Stands in for `_reconstruct(ndarray, (0,), b"b")` and its state (version, shape, dtype, order, bytes)."""

    def __init__(self, *_arguments: object) -> None:
        self.value: NDArray[Any] = np.zeros(0, np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, content = state
        flat = np.frombuffer(content, dtype.resolve())
        self.value = flat.reshape(shape, order="F" if fortran else "C")


def _only_named(*_arguments: object) -> None:
    """Stands in for a class that is only passed as an argument (`numpy.ndarray`)."""
    raise InputError("an array that is made in an unusual way")


def _latin1(text: str, encoding: str) -> bytes:
    """Stands in for `_codecs.encode`, by which Python 3 writes bytes in protocol 2."""
    if encoding != "latin1":
        raise InputError(f"a string in {encoding}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """Stands in for `bytes()`, by which Python 3 writes empty bytes in protocol 2."""
    return b""


class _StandIn:
    """What a name is bound to: it can be called, and nothing in it can be changed."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *arguments: Any) -> Any:
        return self._make(*arguments)

    def __setstate__(self, state: object) -> None:
        raise InputError("an instruction that alters a name")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _only_named,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
    ("__builtin__", "bytes"): _empty_bytes,
    ("builtins", "bytes"): _empty_bytes,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _StandIn(_ADMITTED[module, name])
        except KeyError:
            raise _ForeignNameError(f"{module}.{name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise _ForeignNameError(f"a persistent object {pid!r}")


def _plain(value: Any, seen: Iterator[int]) -> Any:
    """Stand-ins replaced by arrays, bytes by strings, through dictionaries, lists and tuples; `seen` counts them."""
    if next(seen) > MOST_VALUES:
        raise InputError(f"more than {MOST_VALUES:,} values")
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, dict):
        return {_plain(key, seen): _plain(item, seen) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(item, seen) for item in value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise InputError(f"a {type(value).__name__.lstrip('_')} where an array or a plain value belongs")


def read_arrays(content: bytes, name: str) -> dict[str, Any]:
    """The dictionary pickled in `content`: strings, numbers, lists and numeric arrays, with string keys.

    `name` names the file in errors. Bytes, as Python 2 wrote its strings, are returned as latin-1 strings.
    """
    try:
        check_pickle(content)
        result = _plain(_Reader(io.BytesIO(content), encoding="bytes").load(), count())
    except _ForeignNameError as error:
        raise DataError(
            f"{name} names {error}, which is neither an array nor a plain container, so it was not read;"
            " use the official file"
        ) from None
    # Besides UnpicklingError, a damaged stream can raise almost anything from the stack machine.
    except Exception as error:
        raise DataError(f"{name} is damaged or not a pickled dictionary ({error}); get it again") from None
    if not isinstance(result, dict) or not all(isinstance(key, str) for key in result):
        raise DataError(f"{name} does not hold a dictionary with string keys; use the official file")
    return result
