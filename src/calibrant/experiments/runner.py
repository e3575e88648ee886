"""Run jobs one after another or in worker processes, and say how it goes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from calibrant.experiments.jobs import Job, execute
from calibrant.experiments.lab import Lab
from calibrant.runs import RunError


def run_jobs(lab: Lab, jobs: Sequence[Job], *, workers: int = 1) -> None:
    """Do all `jobs`; what has been finished before is not in them, what was stopped midway goes on.

    A job that fails keeps back only those that need it; the failures are told at the end.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if not jobs:
        return
    journal = _Journal(len(jobs))
    if workers == 1:
        _in_turn(lab, jobs, journal)
    else:
        _in_processes(lab, jobs, journal, workers)
    if journal.failures:
        raise RunError(f"{len(journal.failures)} of {len(jobs)} jobs failed: {'; '.join(journal.failures)}")


class _Journal:
    """One line when a job starts and one when it ends, with a guess of what is left."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.failures = total, 0, list[str]()
        self._began, self._started = time.monotonic(), dict[str, float]()

    def start(self, job: Job) -> None:
        self._started[job.name] = time.monotonic()
        self._say(f"start  {job.name}")

    def end(self, job: Job, error: BaseException | None) -> None:
        self.done += 1
        now = time.monotonic()
        took = now - self._started.get(job.name, now)
        if error is not None:
            self.failures.append(f"{job.name}: {error}")
            self._say(f"failed {job.name}: {error}")
            return
        left = (now - self._began) / self.done * (self.total - self.done)
        self._say(f"done   {job.name} in {_duration(took)}; {self.done} of {self.total}, about {_duration(left)} left")

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    """A length of time in words.

    >>> _duration(42), _duration(4000)
    ('42 s', '1 h 7 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _in_turn(lab: Lab, jobs: Sequence[Job], journal: _Journal) -> None:
    lost: set[str] = set()
    for job in _sorted(jobs):
        if lost.intersection(job.after):
            lost.add(job.name)
            journal.end(job, RunError("a job before it failed"))
            continue
        journal.start(job)
        try:
            execute(lab, job)
        except (ValueError, RuntimeError, OSError, ArithmeticError) as error:
            lost.add(job.name)
            journal.end(job, error)
        else:
            journal.end(job, None)


def _sorted(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, each behind those it needs; of several that may come next, the earliest of the list."""
    names, placed, result = {job.name for job in jobs}, set[str](), list[Job]()
    rest = list(jobs)
    while rest:
        job = next(job for job in rest if not (set(job.after) & names) - placed)
        rest.remove(job)
        placed.add(job.name)
        result.append(job)
    return result


def _prepare_worker() -> None:
    import torch

    torch.set_num_threads(1)


def _in_processes(lab: Lab, jobs: Sequence[Job], journal: _Journal, workers: int) -> None:
    """One thread a process: on few cores that is the fastest, and it does not oversubscribe them."""
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    names, done, lost = {job.name for job in jobs}, set[str](), set[str]()
    waiting, running = list(jobs), dict[Future[None], Job]()
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_prepare_worker) as pool:
        while waiting or running:
            for job in [one for one in waiting if lost.intersection(one.after)]:
                waiting.remove(job)
                lost.add(job.name)
                journal.end(job, RunError("a job before it failed"))
            ready = [one for one in waiting if not (set(one.after) & names) - done]
            for job in ready[: workers - len(running)]:
                waiting.remove(job)
                journal.start(job)
                running[pool.submit(execute, lab, job, False)] = job
            if not running:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, error = running.pop(future), future.exception()
                if isinstance(error, BrokenProcessPool):
                    raise RunError("a worker process was ended from outside; start again, and it goes on from there")
                (lost if error else done).add(job.name)
                journal.end(job, error)
