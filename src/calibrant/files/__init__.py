"""Files that are written whole or not at all, and read with their checksums: bytes, JSON, CSV, safetensors.

May import: nothing of ours.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from calibrant import InputError
from calibrant.files import leftovers
from calibrant.files.spreadsheet import marked_rows

if TYPE_CHECKING:
    from torch import Tensor


class RunError(RuntimeError):
    """A run directory that cannot be read or written: one sentence that says what to do."""


class DivergedError(RunError, ValueError):
    """The loss or the logits are no longer finite: one sentence that says what to change."""


@contextlib.contextmanager
def whole(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """An empty file beside `path`, or a `folder`, to be filled, which takes the name `path` if all goes well.

    Until then, and if anything fails, what was at `path` stays there, and of the new one nothing is left. What a killed
    process left of writing `path` is removed first. A device or a pipe is never replaced.
    """
    _refuse_special(path)
    leftovers.clear(path)
    with leftovers.temporary(path, folder=folder) as temporary:
        yield temporary
        _take_the_place(temporary, path)


def _take_the_place(new: Path, target: Path) -> None:
    """Rename `new` to `target`: a file over a file, or a folder over a folder, which is moved aside first."""
    if not (new.is_dir() and target.is_dir()):
        new.replace(target)  # refuses to replace a folder by a file
        return
    target = target.resolve()
    old = new.with_suffix(".old")
    with leftovers.held(target):
        target.rename(old)
        try:
            new.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _refuse_special(path: Path) -> None:
    """Refuse what is neither a file nor a folder: a rename would remove it, as root may do with /dev/null."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is a device or a pipe, which is not written to; name another output file")


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> str:
    """Write all of `content` to `path` or leave it as it was; returns the SHA-256.

    The bytes go to a temporary file beside it, are forced to the disk, and are renamed over the old file. Without
    `durable` they are not forced: that survives the end of the process, but not of the machine.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as temporary, temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError as error:
        raise RunError(cannot_write(path, error)) from error
    return hashlib.sha256(content).hexdigest()


def checksum(content: Mapping[str, Any]) -> str:
    """The SHA-256 of JSON values, whatever their order."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write_json(path: Path, content: Any) -> str:
    """Write `content` as JSON, whole or not at all."""
    return write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write named tensors as safetensors, whole or not at all; tensors that share memory are written one by one."""
    from safetensors.torch import save

    return write_bytes(
        path, save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    )


def open_regular(path: str | Path) -> IO[bytes]:
    """The file `path`, opened for reading; an OSError if it is not a regular file.

    A pipe would be waited for, and a device may have no end.
    """
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def read_text(path: str | Path) -> str:
    """The UTF-8 text in the regular file `path`."""
    with open_regular(path) as file:
        return file.read().decode("utf-8")


def read_bytes(path: Path, sha256: str | None = None) -> bytes:
    """The content of `path`; refused if it does not hash to `sha256`."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise RunError(f"{path} was cut short or altered (its checksum differs); delete its folder to make it anew")
    return content


def read_json(path: Path) -> Any:
    """The JSON in `path`."""
    try:
        return json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        raise RunError(f"{path} was cut short or altered (it is not JSON); delete its folder to make it anew") from None


def read_entries(path: Path, kinds: Mapping[str, Any], remedy: str = "delete it to make it anew") -> dict[str, Any]:
    """The JSON object in `path`; refused unless it has entries of all `kinds`, a type each or a mapping of such."""
    content = read_json(path)
    if not _is_of(content, kinds):
        raise RunError(f"{path} was altered (it lacks what belongs there); {remedy}")
    return dict(content)


def _is_of(content: Any, kind: Any) -> bool:
    if isinstance(kind, Mapping):
        return isinstance(content, dict) and all(_is_of(content.get(name), inner) for name, inner in kind.items())
    return isinstance(content, kind) and not isinstance(content, bool)


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The named tensors in `path`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(read_bytes(path, sha256))
    except SafetensorError:
        raise RunError(f"{path} was cut short or altered (it is not safetensors); delete it to make it anew") from None


def is_text(name: str) -> bool:
    """Whether `name` can be written as UTF-8; Python reads other bytes in a file name, too.

    >>> is_text("cat.png"), is_text(chr(0xDCE9))
    (True, False)
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def cannot_write(path: Path, error: OSError) -> str:
    """The sentence for a file or folder that cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left to write {path}; what was saved before is whole: free some space and start again"
    return f"{path} cannot be written: {error.strerror}; choose another output folder"


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, durable: bool = True) -> str:
    """Write `rows` as CSV, columns in the order in which they first occur; whole or not at all.

    Text that a spreadsheet would take for a formula is marked (`calibrant.files.spreadsheet`).
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        marked_rows([columns, *([row.get(name, "") for name in columns] for row in rows)])
    )
    return write_bytes(path, text.getvalue().encode(), durable=durable)


def read_csv(path: Path, sha256: str | None = None) -> list[dict[str, float]]:
    """The rows of numbers in `path`; empty cells are left out."""
    content = read_bytes(path, sha256)
    try:
        rows = csv.DictReader(io.StringIO(content.decode()))
        return [{name: float(value) for name, value in row.items() if value} for row in rows]
    except (ValueError, TypeError, csv.Error):
        raise RunError(f"{path} was cut short or altered (it holds no numbers); delete it to make it anew") from None


def writable(folder: Path) -> Path:
    """`folder`, made if it is not there; refused if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # under a random name, so that no file of the user's is touched
            return folder
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}; choose another output folder") from None


def writable_file(path: Path, inputs: Iterable[str | Path] = ()) -> Path:
    """`path`, whose folder is made if it is not there; refused, before any work is done, if it cannot be written.

    Refused also if it is one of the files `inputs` that are read, under whatever name.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    _refuse_special(path)
    for read in inputs:
        with contextlib.suppress(OSError):  # one of them is not there
            if path.samefile(read):
                raise InputError(f"{path} would be written over {read}, which is read; name another output file")
    writable(path.parent)
    return path
