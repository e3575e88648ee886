"""Run jobs one after another or in worker processes."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from calibrant.files import RunError
from calibrant.studies.jobs import Job, execute
from calibrant.studies.journal import Journal
from calibrant.studies.lab import Lab

LOST = RunError("a job that it needs failed")


def run_jobs(lab: Lab, jobs: Sequence[Job], *, workers: int = 1) -> None:
    """Do all `jobs`, each behind those it needs; what was stopped midway goes on where it stopped.

    A job that fails keeps back only those that need it; the failures are told at the end.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, not {workers}")
    if not jobs:
        return
    journal = Journal(len(jobs), bar=workers > 1 and sys.stderr.isatty())
    with journal.shown():
        if workers == 1:
            _in_turn(lab, jobs, journal)
        else:
            _in_processes(lab, jobs, journal, workers)
    if journal.failures:
        raise RunError(f"{len(journal.failures)} of {len(jobs)} jobs failed: {'; '.join(journal.failures)}")


class _Queue:
    """Jobs that wait, those that may start, and those that cannot any more."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.waiting, self._open = list(jobs), {job.name for job in jobs}

    def ready(self) -> Job | None:
        """The first job that waits for nothing."""
        found = next((job for job in self.waiting if not self._open.intersection(job.after)), None)
        if found is not None:
            self.waiting.remove(found)
        return found

    def end(self, job: Job, *, failed: bool) -> list[Job]:
        """`job` has ended; returns those that are lost with it."""
        self._open.discard(job.name)
        if not failed:
            return []
        lost = [one for one in self.waiting if job.name in one.after]
        self.waiting = [one for one in self.waiting if one not in lost]
        return lost + [further for one in lost for further in self.end(one, failed=True)]


def _finish(queue: _Queue, journal: Journal, job: Job, error: BaseException | None) -> None:
    journal.end(job.name, error)
    for lost in queue.end(job, failed=error is not None):
        journal.end(lost.name, LOST)


def _in_turn(lab: Lab, jobs: Sequence[Job], journal: Journal) -> None:
    queue = _Queue(jobs)
    while (job := queue.ready()) is not None:
        journal.start(job.name)
        error: Exception | None = None
        try:
            execute(lab, job)
        except Exception as caught:
            error = caught
        _finish(queue, journal, job, error)


def _in_processes(lab: Lab, jobs: Sequence[Job], journal: Journal, workers: int) -> None:
    """One thread a process: on few cores that is the fastest, and it does not oversubscribe them."""
    os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE")
    queue, running = _Queue(jobs), dict[Future[None], Job]()
    strangers = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare_worker) as pool:
        try:
            while True:
                while len(running) < workers and (job := queue.ready()) is not None:
                    journal.start(job.name)
                    running[pool.submit(execute, lab, job, False)] = job
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        raise RunError(
                            "a worker process was ended from outside; start again, and it goes on from there"
                        )
                    _finish(queue, journal, running.pop(future), error)
        except BaseException:
            for child in set(multiprocessing.active_children()) - strangers:
                child.terminate()  # a training step is finished and saved before it obeys
            raise


def _prepare_worker() -> None:
    import torch

    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed must not go on unseen, holding the locks of its stages."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)
