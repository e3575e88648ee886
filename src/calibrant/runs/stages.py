"""Stages, keyed by what determines them: on disk, where they survive any stop, or in memory.

    RUN/stages/fit-CBNN-1f0c2a.../     one folder per stage, named by its key
        inputs.json                    what the key is the hash of
        metrics.csv, *.safetensors     what the stage wrote
        result.json                    its summary, the SHA-256 of its files and its own; written last: "finished"

Stages of different settings live side by side, so sweeps and plain runs in one directory share what they have in
common. Only safetensors, JSON, CSV and YAML are written; nothing is ever pickled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock, Timeout

from calibrant.config.dependence import key
from calibrant.files import (
    RunError,
    cannot_write,
    checksum,
    read_csv,
    read_json,
    read_tensors,
    write_csv,
    write_json,
    write_tensors,
)

if TYPE_CHECKING:
    from torch import Tensor

Files = Mapping[str, "Mapping[str, Tensor]"]
EpochRows = Sequence[Mapping[str, Any]]
METRICS = "metrics.csv"


class Stage(Protocol):
    """What a stage leaves: a summary, named tensors in files, and for a training stage one row per epoch."""

    name: str
    key: str
    inputs: dict[str, Any]

    @property
    def path(self) -> Path | None:
        """Where it lies, for checkpoints and metrics on the way; None in memory."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the stage ran to its end."""
        ...

    @property
    def result(self) -> dict[str, Any]:
        """The summary that `finish` was given."""
        ...

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the stage while it is run."""
        ...

    def finish(self, summary: Mapping[str, Any], files: Files | None = None, rows: EpochRows | None = None) -> None:
        """Keep the results and mark the stage as finished."""
        ...

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors in the file `name` of the finished stage."""
        ...

    def rows(self) -> list[dict[str, float]]:
        """One row per epoch of the finished stage."""
        ...


class StoredStage:
    """A stage in a folder of its own below `root`, which several processes may share."""

    def __init__(self, root: Path, name: str, inputs: Mapping[str, Any]) -> None:
        self.name, self.inputs = name, dict(inputs)
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
            raise RunError(cannot_write(self.path, error)) from error
        try:
            if not (self.path / "inputs.json").exists():
                write_json(self.path / "inputs.json", self.inputs)
            self._sweep()
            yield
        finally:
            lock.release()

    def finish(self, summary: Mapping[str, Any], files: Files | None = None, rows: EpochRows | None = None) -> None:
        """Write the results, and last the record that makes the stage finished."""
        checksums = {name: write_tensors(self.path / name, tensors) for name, tensors in (files or {}).items()}
        if rows is not None:
            checksums[METRICS] = write_csv(self.path / METRICS, rows)
        content = {"key": self.key, "summary": dict(summary), "files": checksums}
        write_json(self.path / "result.json", {**content, "checksum": checksum(content)})

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors that the finished stage wrote to the file `name`, checked against their checksum."""
        return read_tensors(self.path / name, self._checksum(name))

    def rows(self) -> list[dict[str, float]]:
        """One row per epoch."""
        return read_csv(self.path / METRICS, self._checksum(METRICS))

    def _checksum(self, name: str) -> str:
        """That of the file `name`; every file that a stage wrote has one."""
        sha256 = self._record()["files"].get(name)
        if not isinstance(sha256, str):
            raise self._altered()
        return sha256

    def _record(self) -> dict[str, Any]:
        """What `finish` wrote; that of 0.1.0 has no checksum of its own."""
        record = read_json(self.path / "result.json")
        own = record.pop("checksum", None) if isinstance(record, dict) else None
        if not isinstance(record, dict) or (own is not None and own != checksum(record)):
            raise self._altered()
        mappings = (record.get("summary"), record.get("files"))
        if record.get("key") != self.key or not all(isinstance(one, dict) for one in mappings):
            raise self._altered()
        return record

    def _altered(self) -> RunError:
        return RunError(f"{self.path / 'result.json'} was altered; delete its folder to make it anew")

    def _sweep(self) -> None:
        """Remove the temporary files of a process that was killed while it wrote."""
        for leftover in self.path.glob(".*.tmp"):
            leftover.unlink(missing_ok=True)


@dataclass
class MemoryStage:
    """A stage that is gone with the process."""

    name: str
    inputs: dict[str, Any]
    path: None = None
    result: dict[str, Any] = field(default_factory=dict)
    finished: bool = False
    _files: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    _rows: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = key(self.inputs)

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Nobody else can know of it."""
        return contextlib.nullcontext()

    def finish(self, summary: Mapping[str, Any], files: Files | None = None, rows: EpochRows | None = None) -> None:
        """Keep copies of the tensors, which training may go on to change."""
        for name, tensors in (files or {}).items():
            self._files[name] = {key: value.detach().clone() for key, value in tensors.items()}
        self.result, self.finished = dict(summary), True
        self._rows = [{name: float(value) for name, value in row.items()} for row in rows or ()]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of the file `name`."""
        return dict(self._files[name])

    def rows(self) -> list[dict[str, float]]:
        """One row per epoch."""
        return [dict(row) for row in self._rows]
