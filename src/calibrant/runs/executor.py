"""The one way in which tasks run: what a task is, how it ends, in what order, and two of the three executors.

`Serial` runs tasks in turn in this process, `Processes` side by side in worker processes, and
`calibrant.runs.ray_tune.RayTune` on a Ray cluster. All of them keep one contract:

- A task starts once the tasks in its `after` have finished; of those that may start, the first in the list goes first.
- A task that fails keeps back only the tasks that need it. With `stop_on_failure`, the first failure stops everything
  and is raised.
- A failure that may not repeat is retried `retries` times; an `InputError` or `RunError` would only repeat.
- Ctrl-C and SIGTERM end the workers and are raised. `Processes` waits until they have saved their checkpoints; a worker
  of Ray is ended at once and resumes from its latest one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter
from multiprocessing.connection import wait
from typing import Any, Literal, Protocol

from calibrant import InputError
from calibrant.files import RunError
from calibrant.runs.failures import WorkerError, described, portable
from calibrant.runs.resources import cores, torch_threads
from calibrant.slots import load_plugins, loaded_plugins

Send = Callable[[Any], None]


@dataclass(frozen=True, eq=False)
class Task:
    """`function(argument, send)`, to be run once the tasks named in `after` have finished.

    Args:
        name: unique among the tasks of a run.
        function: importable by name; whatever it passes to `send` reaches the listener while it works.
        argument: anything that can be pickled.
        after: names of other tasks of the run.
        steps: the number of steps for which it sends a `Score`, if it may be stopped early; 0 means it may not.
        plugins: modules that the process imports before it begins, by default those that this one was given.
    """

    name: str
    function: Callable[[Any, Send], Any]
    argument: Any = None
    after: tuple[str, ...] = ()
    steps: int = 0
    plugins: tuple[str, ...] = field(default_factory=loaded_plugins)


@dataclass(frozen=True)
class Score:
    """A message by which an executor may stop a task early: lower values are better."""

    step: int
    value: float


@dataclass(frozen=True)
class Ended:
    """How a task ended: with the `value` of its function, with an `error`, or `stopped` early after that step."""

    value: Any = None
    error: Exception | None = None
    stopped: int | None = None

    @property
    def state(self) -> Literal["finished", "stopped", "failed"]:
        """In one word."""
        return "failed" if self.error is not None else "finished" if self.stopped is None else "stopped"

    @property
    def reason(self) -> str:
        """The error in one line, with its kind unless it is one of ours."""
        return "" if self.error is None else described(self.error)

    def portable(self) -> Ended:
        """The same with an error that any process can read."""
        return self if self.error is None else Ended(error=portable(self.error))


def may_succeed_again(error: Exception) -> bool:
    """Whether `error` need not repeat itself."""
    return isinstance(error, WorkerError) or not isinstance(error, (InputError, RunError))


def _ignore(*event: Any) -> None:
    pass


@dataclass(frozen=True)
class Listener:
    """Functions that are told, in the calling process, what happens to the tasks."""

    on_start: Callable[[Task], None] = _ignore
    on_message: Callable[[Task, Any], None] = _ignore
    on_end: Callable[[Task, Ended], None] = _ignore


SILENT = Listener()


class Executor(Protocol):
    """Where tasks run."""

    @property
    def uses_accelerator(self) -> bool:
        """Whether a task may choose an accelerator by itself."""

    def run(
        self, tasks: Sequence[Task], listener: Listener = SILENT, *, stop_on_failure: bool = False
    ) -> dict[str, Ended]:
        """Run all of `tasks`; returns how each ended, by name and in the order in which they ended."""


class Agenda:
    """The tasks of one run: those that wait, those that may start, and how the others ended."""

    def __init__(
        self, tasks: Sequence[Task], listener: Listener, *, retries: int = 0, stop_on_failure: bool = False
    ) -> None:
        self.waiting, self.ended = list(tasks), dict[str, Ended]()
        self.listener, self._retries, self._stop_on_failure = listener, retries, stop_on_failure
        self._failures: Counter[str] = Counter()
        _check(tasks)

    def start(self) -> Task | None:
        """Take the first task that waits for no other."""
        task = next((task for task in self.waiting if self.ended.keys() >= set(task.after)), None)
        if task is not None:
            self.waiting.remove(task)
            self.listener.on_start(task)
        return task

    def end(self, task: Task, ended: Ended) -> None:
        """Note how `task` ended: it is tried again, or done, or lost together with what needs it."""
        if ended.error is not None and may_succeed_again(ended.error) and self._failures[task.name] < self._retries:
            self._failures[task.name] += 1
            self.waiting.insert(0, task)
            return
        self.ended[task.name] = ended
        self.listener.on_end(task, ended)
        if ended.error is not None and self._stop_on_failure:
            raise ended.error
        if ended.state != "finished":
            self._lose(task)

    def _lose(self, needed: Task) -> None:
        for task in [task for task in self.waiting if needed.name in task.after]:
            if task in self.waiting:
                self.waiting.remove(task)
                self.end(task, Ended(error=RunError(f"{needed.name}, which it needs, did not finish")))


def _check(tasks: Sequence[Task]) -> None:
    names = {task.name for task in tasks}
    if len(names) < len(tasks):
        raise InputError("tasks must have different names")
    unknown = next((name for task in tasks for name in task.after if name not in names), None)
    if unknown is not None:
        raise InputError(f"a task waits for {unknown!r}, which is not among the tasks")
    try:
        TopologicalSorter({task.name: task.after for task in tasks}).prepare()
    except CycleError as error:
        raise InputError(f"tasks wait for each other: {', '.join(error.args[1])}") from None


def perform(task: Task, send: Send) -> Ended:
    """Call the function of `task`."""
    try:
        load_plugins(task.plugins)
        return Ended(task.function(task.argument, send))
    except Exception as error:
        return Ended(error=error)


@dataclass(frozen=True)
class Serial:
    """One task at a time in this process, with `threads` threads of PyTorch; None leaves their number alone."""

    threads: int | None = None
    retries: int = 0
    uses_accelerator = True

    def run(
        self, tasks: Sequence[Task], listener: Listener = SILENT, *, stop_on_failure: bool = False
    ) -> dict[str, Ended]:
        """See `Executor`."""
        agenda = Agenda(tasks, listener, retries=self.retries, stop_on_failure=stop_on_failure)
        while (task := agenda.start()) is not None:
            with nullcontext() if self.threads is None else torch_threads(self.threads):
                ended = perform(task, partial(listener.on_message, task))
            agenda.end(task, ended)
        return agenda.ended


@dataclass(frozen=True)
class Processes:
    """As many tasks side by side as there are `workers` (None: as cores), each with one thread.

    A worker serves one task after another, so that what it has in memory is there for the next. One that dies fails
    its task and is replaced.
    """

    workers: int | None = None
    retries: int = 0
    uses_accelerator = True

    def run(
        self, tasks: Sequence[Task], listener: Listener = SILENT, *, stop_on_failure: bool = False
    ) -> dict[str, Ended]:
        """See `Executor`."""
        from calibrant.runs.worker_process import Worker

        agenda = Agenda(tasks, listener, retries=self.retries, stop_on_failure=stop_on_failure)
        idle, busy = list[Worker](), dict[Any, Worker]()
        try:
            while True:
                while len(busy) < (self.workers or cores()) and (task := agenda.start()) is not None:
                    idle = [worker for worker in idle if worker.alive]
                    worker = idle.pop() if idle else Worker()
                    busy[worker.connection] = worker
                    worker.give(task)
                if not busy:
                    return agenda.ended
                for connection in wait(list(busy)):
                    worker = busy[connection]
                    if (ended := worker.receive(listener)) is not None:
                        idle += [worker] if worker.alive else []
                        del busy[connection]
                        agenda.end(worker.task, ended)
        finally:
            Worker.stop_all([*idle, *busy.values()])
