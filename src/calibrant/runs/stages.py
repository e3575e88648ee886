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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from calibrant.config.dependence import key
from calibrant.files import RunError, _why, read_json, read_tensors, write_bytes, write_json

if TYPE_CHECKING:
    from torch import Tensor


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
