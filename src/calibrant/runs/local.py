"""Trials one after another in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from calibrant.training.sweeps.trials import DataCache, Job, OnEnd, Outcome, run_job


@dataclass
class LocalEngine:
    """One trial at a time, each with `threads` threads; one that fails unexpectedly is tried `retries` times more."""

    threads: int = 1
    retries: int = 2
    data: DataCache = field(default_factory=DataCache)

    def run(self, jobs: Sequence[Job], on_end: OnEnd) -> None:
        """Run `jobs` in order and tell how each ended."""
        for job in jobs:
            on_end(job, self._try(job, self.retries))

    def _try(self, job: Job, again: int) -> Outcome:
        try:
            return run_job(job, self.data(job.settings), threads=self.threads)
        except Exception as error:
            if again > 0:
                return self._try(job, again - 1)
            return Outcome("failed", reason=" ".join(f"{type(error).__name__}: {error}".split()))
