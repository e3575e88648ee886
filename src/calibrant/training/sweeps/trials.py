"""One trial, wherever it runs: train what is not in the run directory yet, and measure it on validation data."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from calibrant.config.groups import DataSettings
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.files import RunError, write_json
from calibrant.training import TrainingData, Workspace, open_data

Measures = dict[str, float]
State = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: finished with its measures, stopped early, or failed for a reason."""

    state: State
    measures: Measures | None = None
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """A trial that can be sent anywhere the folder `out` is; `key` is the hash of what determines its measures."""

    name: str
    settings: Settings
    scheme: str
    out: Path
    key: str

    @property
    def attempts(self) -> int:
        """How often the trial was begun; every process that begins it leaves a note."""
        return len(list((self.out / "attempts").glob(f"{self.key}-*.json")))

    @property
    def epochs(self) -> int:
        """Epochs of the stage that the trial is about."""
        scheme = Scheme.parse(self.scheme)
        return self.settings.finetune.epochs if scheme.ocm else self.settings.fit.epochs


OnEnd = Callable[[Job, Outcome], None]


def open_workspace(settings: Settings, out: Path, data: TrainingData | None = None) -> Workspace:
    """The run directory of the sweep under the settings of one trial."""
    data = open_data(settings.data, settings.seed) if data is None else data
    return Workspace(data, settings, out, progress=False)


class DataCache:
    """Data by what names it, so that trials which do not vary the data read it once."""

    def __init__(self) -> None:
        self._found: dict[tuple[DataSettings, int], TrainingData] = {}

    def __call__(self, settings: Settings) -> TrainingData:
        """The data of `settings`."""
        key = (settings.data, settings.seed)
        if key not in self._found:
            self._found[key] = open_data(*key)
        return self._found[key]


def note_attempt(job: Job) -> None:
    """Leave word that this process begins `job`."""
    note = {"trial": job.name, "pid": os.getpid(), "host": socket.gethostname()}
    write_json(job.out / "attempts" / f"{job.key}-{secrets.token_hex(4)}.json", note)


def run_job(job: Job, data: TrainingData | None = None, *, threads: int = 1) -> Outcome:
    """Train and measure; what can only fail again is returned as failed, anything else is raised."""
    note_attempt(job)
    try:
        with torch_threads(threads):
            return Outcome("finished", open_workspace(job.settings, job.out, data).validation(job.scheme))
    except (ValueError, RunError) as error:
        return Outcome("failed", reason=" ".join(str(error).split()))


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Inside, PyTorch computes with `count` threads: results depend on it in the last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
