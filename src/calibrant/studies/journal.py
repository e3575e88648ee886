"""What a run of jobs says while it goes on: a bar on a terminal, otherwise a line when a job starts and ends."""

from __future__ import annotations

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from calibrant.runs.executor import Ended, Task


class Journal:
    """Counts jobs as they start and end, remembers failures by the name of the job, and guesses what time is left.

    `bar`: one bar for all jobs in place of lines. A stage that runs in this process has a bar of its own.
    """

    def __init__(self, total: int, *, bar: bool = False) -> None:
        self.total, self.done, self.failures = total, 0, dict[str, Exception]()
        self._began, self._started = time.monotonic(), dict[str, float]()
        self._progress: Any = None
        if bar:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._progress = Progress(*columns, console=Console(stderr=True))
            self._task = self._progress.add_task("", total=total)

    def shown(self) -> AbstractContextManager[Any]:
        """Inside, the bar is drawn."""
        return nullcontext() if self._progress is None else self._progress

    def start(self, task: Task) -> None:
        """`task` starts."""
        self._started[task.name] = time.monotonic()
        self._tell(f"start  {task.name}")

    def end(self, task: Task, ended: Ended) -> None:
        """`task` has ended."""
        self.done += 1
        now = time.monotonic()
        took = now - self._started.pop(task.name, now)
        if ended.error is not None:
            self.failures[task.name] = ended.error
            self._tell(f"failed {task.name}: {ended.reason}", always=True)
            return
        left = (now - self._began) / self.done * (self.total - self.done)
        self._tell(f"done   {task.name} in {duration(took)}; {self.done} of {self.total}, about {duration(left)} left")

    def _tell(self, text: str, *, always: bool = False) -> None:
        if self._progress is not None:
            self._progress.update(self._task, completed=self.done, description=", ".join(self._started))
        if self._progress is None or always:
            print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A length of time in words.

    >>> duration(42), duration(4000)
    ('42 s', '1 h 7 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
