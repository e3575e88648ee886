"""Run a sweep to its end, on any executor: what is done already is kept, the rest is run, the rule picks the winner."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from calibrant import InputError
from calibrant.config.groups import DataSettings
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.files import RunError, writable, write_json
from calibrant.runs.executor import Ended, Executor, Listener, Score, Send, Task
from calibrant.runs.failures import worst
from calibrant.training import TrainingData, Workspace, open_data
from calibrant.training.sweeps.grid import BASELINE, Sweep
from calibrant.training.sweeps.record import RECORD, SweepResult, TrialRow

# A proper score, low only for what is both accurate and calibrated; the ECE alone is low for a network that has
# learned nothing yet.
_SCORE = "validation_cross_entropy"


@dataclass(frozen=True)
class TrialFit:
    """A trial that can be run anywhere the folder `out` is; `key` is the hash of what determines its measures."""

    name: str
    settings: Settings
    scheme: Scheme
    out: Path
    key: str

    @property
    def attempts(self) -> int:
        """How often the trial was begun; every process that begins it leaves a note."""
        return len(list((self.out / "attempts").glob(f"{self.key}-*.json")))

    @property
    def epochs(self) -> int:
        """Epochs of the stage that the trial is about."""
        return self.settings.finetune.epochs if self.scheme.ocm else self.settings.fit.epochs

    def note_attempt(self) -> None:
        """Leave word that this process begins the trial."""
        note = {"trial": self.name, "pid": os.getpid(), "host": socket.gethostname()}
        write_json(self.out / "attempts" / f"{self.key}-{secrets.token_hex(4)}.json", note)


def run_trial(trial: TrialFit, send: Send) -> dict[str, float]:
    """Train what is not in the run directory yet, sending a score per epoch, and measure it on validation data."""
    if not trial.out.is_dir():
        host = socket.gethostname()
        raise RunError(f"{trial.out} is not there on {host}; put --out into a folder that all nodes share")
    trial.note_attempt()
    sent = 0

    def on_epoch(scheme: Scheme, rows: Sequence[dict[str, float]]) -> None:
        nonlocal sent
        if scheme == trial.scheme:
            for row in rows[sent:]:  # after a resume, also the rows of earlier attempts
                if _SCORE in row:
                    send(Score(int(row["epoch"]), row[_SCORE]))
            sent = len(rows)

    data = _data(trial.settings.data, trial.settings.seed)
    workspace = Workspace(data, trial.settings, trial.out, progress=False, on_epoch=on_epoch)
    return workspace.validation(trial.scheme)


@lru_cache(maxsize=4)
def _data(settings: DataSettings, seed: int) -> TrainingData:
    """Trials that do not vary the data read it once."""
    return open_data(settings, seed)


def run_sweep(
    sweep: Sweep, out: str | Path, executor: Executor, *, on_trial: Callable[[TrialRow, int, int], None] | None = None
) -> SweepResult:
    """Run every trial of `sweep` that is not done in `out` yet.

    Trials that an earlier sweep in `out` finished or stopped early are kept, failed ones are tried again.
    `on_trial(row, done, total)` is told of every trial that ends.
    """
    folder = writable(Path(out)).absolute()
    fits = _fits(sweep, folder)
    result = _begun(sweep, folder, fits)
    rows = {row.name: row for row in result.rows()}

    def current() -> SweepResult:
        return replace(result, baseline=rows[result.baseline.name], trials=tuple(rows[r.name] for r in result.trials))

    def on_end(task: Task, ended: Ended) -> None:
        fit: TrialFit = task.argument
        rows[task.name] = rows[task.name].after(ended, fit.epochs, fit.attempts)
        current().save(folder)
        if on_trial is not None:
            done = sum(row.state != "pending" for row in rows.values())
            on_trial(rows[task.name], done, len(rows))

    result.save(folder)
    todo = [_task(fit, executor) for fit in fits if rows[fit.name].state == "pending"]
    ended = executor.run(todo, Listener(on_end=on_end))
    final = replace(current(), errors={name: one.error for name, one in ended.items() if one.error is not None})
    final.draw(folder)
    return final


def _fits(sweep: Sweep, out: Path) -> list[TrialFit]:
    """The baseline and all trials; refused if a parameter changes nothing that is measured."""
    fits, seen = [], dict[str, str]()
    for spec in (sweep.baseline(), *sweep.trials()):
        settings = sweep.settings.with_(*spec.overrides)
        workspace = Workspace(_data(settings.data, settings.seed), settings, out, progress=False)
        key = workspace.validation_stage(spec.scheme).key
        if key in seen:
            raise InputError(
                f"trials {seen[key]!r} and {spec.name!r} are the same to the network of {spec.scheme} and its"
                " validation, which is what a sweep measures; sweep another param"
            )
        if spec.params:
            seen[key] = spec.name
        fits.append(TrialFit(spec.name, settings, Scheme.parse(spec.scheme), out, key))
    return fits


def _task(fit: TrialFit, executor: Executor) -> Task:
    """`fit` as a task: on the processor, unless it may take an accelerator; the baseline is never stopped early."""
    if fit.settings.engine.device == "auto" and not executor.uses_accelerator:
        fit = replace(fit, settings=fit.settings.with_("engine.device=cpu"))
    return Task(fit.name, run_trial, fit, steps=0 if fit.name == BASELINE else fit.epochs)


def _begun(sweep: Sweep, out: Path, fits: Sequence[TrialFit]) -> SweepResult:
    """The rows to start from: those of an earlier sweep in `out` that need not be run again, and pending ones."""
    known: dict[str, TrialRow] = {}
    if (out / RECORD).exists():
        known = {row.key: row for row in SweepResult.load(out).rows() if row.state in ("finished", "stopped")}
    params = {trial.name: trial.params for trial in sweep.trials()}
    rows = []
    for fit in fits:
        row = TrialRow(fit.name, params.get(fit.name, {}), fit.key, attempts=fit.attempts)
        before = known.get(fit.key)
        rows.append(row if before is None else replace(before, name=row.name, params=row.params))
    return SweepResult(sweep, rows[0], tuple(rows[1:]))


def check_finished(result: SweepResult, resume: str) -> None:
    """Refuse to call a sweep done in which a trial failed, with an error of the worst kind among them."""
    failed = [row for row in result.rows() if row.state == "failed"]
    if failed:
        raise worst(
            [result.errors[row.name] for row in failed if row.name in result.errors],
            f"{len(failed)} of {len(result.rows())} trials failed, first {failed[0].name}: {failed[0].reason};"
            f" to try them again: {resume}",
        )
