"""Run a sweep to its end, on any engine: what is done already is kept, the rest is run, the rule picks the winner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from calibrant.files import RunError
from calibrant.training.sweeps.grid import Sweep
from calibrant.training.sweeps.record import RECORD, SweepResult, TrialRow
from calibrant.training.sweeps.trials import DataCache, Job, OnEnd, Outcome, open_workspace


class Engine(Protocol):
    """Where trials run."""

    def run(self, jobs: Sequence[Job], on_end: OnEnd) -> None:
        """Run all of `jobs`, and call `on_end` in this process once for each, in the order in which they end."""


def run_sweep(
    sweep: Sweep, out: str | Path, engine: Engine, *, on_trial: Callable[[TrialRow, int, int], None] | None = None
) -> SweepResult:
    """Run every trial of `sweep` that is not done in `out` yet.

    Trials that an earlier sweep in `out` finished or stopped early are kept, failed ones are tried again.
    `on_trial(row, done, total)` is told of every trial that ends.
    """
    folder = Path(out).absolute()
    jobs = _jobs(sweep, folder)
    result = _begun(sweep, folder, jobs)
    rows = {row.name: row for row in result.rows()}

    def current() -> SweepResult:
        return replace(result, baseline=rows[result.baseline.name], trials=tuple(rows[r.name] for r in result.trials))

    def on_end(job: Job, outcome: Outcome) -> None:
        rows[job.name] = rows[job.name].after(outcome, job.attempts)
        current().save(folder)
        if on_trial is not None:
            done = sum(row.state != "pending" for row in rows.values())
            on_trial(rows[job.name], done, len(rows))

    result.save(folder)
    pending = [job for job in jobs if rows[job.name].state == "pending"]
    if pending:
        engine.run(pending, on_end)
    final = current()
    final.draw(folder)
    return final


def _jobs(sweep: Sweep, out: Path) -> list[Job]:
    """The baseline and all trials; refused if a parameter changes nothing that is measured."""
    data, jobs, seen = DataCache(), [], dict[str, str]()
    for trial in (sweep.baseline(), *sweep.trials()):
        settings = sweep.settings.with_(*trial.overrides)
        workspace = open_workspace(settings, out, data(settings))
        key = workspace.validation_stage(trial.scheme).key
        if key in seen:
            raise ValueError(
                f"trials {seen[key]!r} and {trial.name!r} are the same to the network of {trial.scheme} and its"
                " validation, which is what a sweep measures; sweep another param"
            )
        if trial.params:
            seen[key] = trial.name
        jobs.append(Job(trial.name, settings, trial.scheme, out, key))
    return jobs


def _begun(sweep: Sweep, out: Path, jobs: Sequence[Job]) -> SweepResult:
    """The rows to start from: those of an earlier sweep in `out` that need not be run again, and pending ones."""
    known: dict[str, TrialRow] = {}
    if (out / RECORD).exists():
        known = {row.key: row for row in SweepResult.load(out).rows() if row.state in ("finished", "stopped")}
    params = {trial.name: trial.params for trial in sweep.trials()}
    rows = []
    for job in jobs:
        row = TrialRow(job.name, params.get(job.name, {}), job.key, attempts=job.attempts)
        before = known.get(job.key)
        rows.append(row if before is None else replace(before, name=row.name, params=row.params))
    return SweepResult(sweep, rows[0], tuple(rows[1:]))


def check_finished(result: SweepResult, resume: str) -> None:
    """Refuse to call a sweep done in which a trial failed."""
    failed = [row for row in result.rows() if row.state == "failed"]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(result.rows())} trials failed, first {failed[0].name}: {failed[0].reason};"
            f" to try them again: {resume}"
        )
