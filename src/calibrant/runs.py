"""The run directory: stages keyed by what determines them, files written whole or not at all, locks that die with us.

    RUN/settings.yaml                  what was asked for
    RUN/splits.json                    the index lists
    RUN/stages/fit-CBNN-1f0c2a.../     one folder a stage, named by its key
        inputs.json                    what the key is the hash of
        metrics.csv, *.safetensors     what the stage wrote
        result.json                    its summary and the SHA-256 of its files; written last, so it means "finished"

Stages of different settings live side by side, so sweeps and plain runs in one directory share what they have in
common. Only safetensors, JSON, CSV and YAML are written; nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from calibrant.settings import key

if TYPE_CHECKING:
    from torch import Tensor


class RunError(RuntimeError):
    """A run directory that cannot be read or written: one sentence that says what to do."""


def write_bytes(path: Path, content: bytes, *, durable: bool = True) -> str:
    """Write all of `content` to `path` or leave it as it was; returns the SHA-256.

    The bytes go to a temporary file beside it, are forced to the disk, and are renamed over the old file. Without
    `durable` they are not forced: that survives the end of the process, but not of the machine.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunError(_why(path, error)) from error
    return hashlib.sha256(content).hexdigest()


def write_json(path: Path, content: Any) -> str:
    """Write `content` as JSON, whole or not at all."""
    return write_bytes(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write named tensors as safetensors, whole or not at all; tensors that share memory are written one by one."""
    from safetensors.torch import save

    return write_bytes(
        path, save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    )


def read_bytes(path: Path, sha256: str | None = None) -> bytes:
    """The content of `path`; refused if it does not hash to `sha256`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise RunError(f"{path} was cut short or altered (its checksum differs); delete its folder to make it anew")
    return content


def read_json(path: Path) -> Any:
    """The JSON in `path`."""
    try:
        return json.loads(read_bytes(path))
    except ValueError:
        raise RunError(f"{path} was cut short or altered (it is not JSON); delete its folder to make it anew") from None


def read_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """The named tensors in `path`."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(read_bytes(path, sha256))
    except SafetensorError:
        raise RunError(f"{path} was cut short or altered (it is not safetensors); delete it to make it anew") from None


def _why(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space is left to write {path}; what was saved before is whole: free some space and start again"
    return f"{path} cannot be written: {error.strerror}; choose another output folder"


class Stage:
    """One folder of a run: the results of one stage, and whatever it needs to go on after a stop."""

    def __init__(self, root: Path, name: str, inputs: Mapping[str, Any]) -> None:
        self.name = name
        self.inputs = dict(inputs)
        self.key = key(self.inputs)
        self.path = root / f"{name}-{self.key}"

    @property
    def finished(self) -> bool:
        """Whether the stage ran to its end."""
        return (self.path / "result.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        """The summary that `finish` wrote."""
        return dict(self._record()["summary"])

    @contextlib.contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[None]:
        """Hold the stage for this process; another one that holds it is waited for, or with `wait=False` refused.

        The lock is the operating system's, so it ends with its process, however that ends.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock")
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            raise RunError(f"another process is working on {self.path}; wait until it is done, or stop it") from None
        except OSError as error:
            raise RunError(_why(self.path, error)) from error
        try:
            if not (self.path / "inputs.json").exists():
                write_json(self.path / "inputs.json", self.inputs)
            self._sweep()
            yield
        finally:
            lock.release()

    def finish(self, summary: Mapping[str, Any], files: Mapping[str, str]) -> None:
        """Mark the stage as finished: `files` maps the names of its results to their checksums."""
        write_json(self.path / "result.json", {"key": self.key, "summary": dict(summary), "files": dict(files)})

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors that the finished stage wrote to the file `name`, checked against their checksum."""
        return read_tensors(self.path / name, self._record()["files"].get(name))

    def _record(self) -> dict[str, Any]:
        record = read_json(self.path / "result.json")
        if not isinstance(record, dict) or not {"key", "summary", "files"} <= set(record) or record["key"] != self.key:
            raise RunError(f"{self.path / 'result.json'} was altered; delete its folder to make it anew")
        return record

    def _sweep(self) -> None:
        """Remove the temporary files of a process that was killed while it wrote."""
        for leftover in self.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)


class RunDirectory:
    """A folder of stages.

    >>> RunDirectory("RUN").stage("fit-CBNN", {"rate": 0.1}).path.parent
    PosixPath('RUN/stages')
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)

    def stage(self, name: str, inputs: Mapping[str, Any]) -> Stage:
        """The stage `name` that `inputs` (JSON values) determine, run or not."""
        return Stage(self.root / "stages", name, inputs)

    def write_text(self, name: str, content: str) -> None:
        """Write `content` to the file `name` of the run, whole or not at all."""
        write_bytes(self.root / name, content.encode())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, durable: bool = True) -> str:
    """Write `rows` as CSV, columns in the order in which they first occur; whole or not at all."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_bytes(path, text.getvalue().encode(), durable=durable)


def read_csv(path: Path) -> list[dict[str, float]]:
    """The rows of numbers in `path`; empty cells are left out."""
    rows = csv.DictReader(io.StringIO(read_bytes(path).decode()))
    return [{name: float(value) for name, value in row.items() if value} for row in rows]
