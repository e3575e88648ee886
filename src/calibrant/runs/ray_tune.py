"""Tasks on Ray Tune: as many at a time as the cluster has room for, early stopping, retries of tasks whose worker dies.

Tasks keep what they need to resume in folders that all nodes share, so Ray Tune itself has nothing to keep: its own
files go to a temporary folder.
"""

from __future__ import annotations

import builtins
import logging
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from calibrant import InputError
from calibrant.runs.executor import (
    SILENT,
    Agenda,
    Ended,
    Listener,
    Score,
    Send,
    Task,
    may_succeed_again,
    perform,
)
from calibrant.runs.failures import UnexpectedError, WorkerError, is_expected
from calibrant.runs.ray_cluster import cluster
from calibrant.runs.resources import Resources, environment, torch_threads

_TUNE = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: the command line says how to resume
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # only a score has the metric
    "TUNE_MAX_PENDING_TRIALS_PG": "64",  # workers start side by side, not in turn
    "RAY_AIR_NEW_OUTPUT": "0",  # which prints to standard output even where it is told to be silent
}


@dataclass(frozen=True)
class RayTune:
    """Tasks on the Ray cluster at `address`; None starts one on this machine, "auto" takes the one that runs here.

    Args:
        address: the only difference between one node and many.
        resources: of one task.
        retries: how often a task whose worker died, or that failed unexpectedly, is started again.
        asha: stop tasks early whose scores fall behind (asynchronous successive halving; Li et al. 2020).
    """

    address: str | None = None
    resources: Resources = field(default_factory=Resources)
    retries: int = 2
    asha: bool = False

    @property
    def uses_accelerator(self) -> bool:
        """Whether a task was given an accelerator."""
        return self.resources.gpu > 0

    def run(
        self, tasks: Sequence[Task], listener: Listener = SILENT, *, stop_on_failure: bool = False
    ) -> dict[str, Ended]:
        """See `calibrant.runs.executor.Executor`."""
        agenda = Agenda(tasks, listener, stop_on_failure=stop_on_failure)  # retries are Ray Tune's
        if not tasks:
            return agenda.ended
        with cluster(self.address) as ray, environment(_TUNE), tempfile.TemporaryDirectory() as folder:
            self._check_room(ray)
            self._tune(agenda, tasks, folder)
        return agenda.ended

    def _check_room(self, ray: Any) -> None:
        """Refuse resources that no node has; Ray would wait for them for ever."""
        wanted = {"CPU": self.resources.cpu, "GPU": self.resources.gpu, **self.resources.custom}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            best = {name: max(node.get(name, 0) for node in nodes) for name in wanted}
            raise InputError(f"resources {wanted} of a trial are more than any node of the cluster has: {best}")

    def _tune(self, agenda: Agenda, tasks: Sequence[Task], folder: str) -> None:
        from ray import tune

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # the listener is told of failures
        work = tune.with_parameters(_work, tasks=tuple(tasks), threads=self.resources.cpu)
        driver = _Driver(agenda, tasks)
        starts, tells = _hooks(driver)
        tune.Tuner(
            tune.with_resources(work, self.resources.for_tune()),
            tune_config=tune.TuneConfig(
                search_alg=starts,
                num_samples=len(tasks),
                scheduler=self._scheduler(tasks),
                # A process serves many tasks, unless one of them may have been stopped in the middle of its work.
                reuse_actors=not self.asha,
            ),
            run_config=tune.RunConfig(
                name="tasks",
                storage_path=folder,
                failure_config=tune.FailureConfig(max_failures=self.retries),
                callbacks=[tells],
                stop=tells,
                verbose=0,
            ),
        ).fit()
        if driver.error is not None:
            raise driver.error

    def _scheduler(self, tasks: Sequence[Task]) -> Any:
        steps = max(task.steps for task in tasks)
        if not self.asha or not steps:
            return None
        from ray.tune.schedulers import ASHAScheduler

        return ASHAScheduler(
            time_attr="step", metric="score", mode="min", max_t=steps + 1, grace_period=max(1, steps // 8)
        )


def _work(config: dict[str, Any], *, tasks: Sequence[Task], threads: int) -> None:
    """The worker's side: the task runs in a thread, which dies with the process if it is stopped; this one reports."""
    from ray import tune

    task, sent = tasks[config["task"]], SimpleQueue[Any]()
    threading.Thread(target=_perform, args=(task, threads, sent.put), daemon=True).start()
    while not isinstance(message := sent.get(), Ended):
        tune.report(_report(task, message))
    if message.error is not None and may_succeed_again(message.error):
        raise message.error
    tune.report({"ended": message.portable()})


def _perform(task: Task, threads: int, send: Send) -> None:
    ended = Ended(error=WorkerError("its worker was told to exit"))
    try:
        with torch_threads(threads):
            ended = perform(task, send)
    finally:
        send(ended)


def _report(task: Task, message: Any) -> dict[str, Any]:
    """A message for Ray Tune. Without a score it is no measure for others; nobody is stopped after the last step."""
    if isinstance(message, Score) and message.step < task.steps:
        return {"message": message, "step": message.step, "score": message.value}
    return {"message": message}


class _Driver:
    """What leads Ray Tune in the calling process: it starts what the agenda says, and tells the agenda what happens.

    Ray Tune swallows the errors of its callbacks, so the first one is kept in `error`, and everything is stopped.
    """

    def __init__(self, agenda: Agenda, tasks: Sequence[Task]) -> None:
        self.agenda, self.tasks = agenda, tasks
        self.error: BaseException | None = None

    def __reduce__(self) -> Any:
        """Ray Tune saves what leads it to resume a run, which we never do."""
        return object, ()

    def start(self) -> dict[str, int] | str | None:
        """The next task by its number, "FINISHED" when there is none left, None when all others wait."""
        if self.error is not None or not self.agenda.waiting:
            return "FINISHED"
        task = self.agenda.start()
        return None if task is None else {"task": self.tasks.index(task)}

    def hear(self, number: int, result: dict[str, Any]) -> None:
        """A task has sent something."""
        if "message" in result:
            self._tell(self.agenda.listener.on_message, number, result["message"])

    def end(self, number: int, result: dict[str, Any]) -> None:
        """A task has ended; without its last report, it was stopped early."""
        self._tell(self.agenda.end, number, result.get("ended", Ended(stopped=result.get("step"))))

    def fail(self, number: int, failures: str) -> None:
        """A task failed too often; the text has a traceback of each failure that was not the death of a process."""
        last = failures.rpartition("Failure # ")[2].strip()
        reason = last.splitlines()[-1].strip() if "ray::" in last else "its process died"
        error = UnexpectedError(reason, last) if _is_bug(reason) else WorkerError(reason)
        self._tell(self.agenda.end, number, Ended(error=error))

    def _tell(self, function: Any, number: int, content: Any) -> None:
        if self.error is None:
            try:
                function(self.tasks[number], content)
            except Exception as error:
                self.error = error


def _is_bug(reason: str) -> bool:
    """Whether the last line of a traceback names an error that nobody foresaw.

    >>> _is_bug("IndexError: off by one"), _is_bug("OSError: [Errno 28] No space left on device")
    (True, False)
    >>> _is_bug("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte")
    True
    """
    kind = getattr(builtins, reason.partition(":")[0], None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return False
    return issubclass(kind, UnicodeError) or not is_expected(kind())  # one of Unicode cannot be made of nothing


def _hooks(driver: _Driver) -> tuple[Any, Any]:
    """What Ray Tune asks for the next task, and what it tells everything else and asks whether to stop."""
    from ray.tune import Callback, Stopper
    from ray.tune.search import Searcher

    class Start(Searcher):  # type: ignore[misc]
        def suggest(self, trial_id: str) -> Any:
            return driver.start()

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            pass  # the other hook is told more

    class Tell(Callback, Stopper):  # type: ignore[misc]
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            driver.hear(trial.config["task"], result)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            driver.end(trial.config["task"], trial.last_result)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            driver.fail(trial.config["task"], Path(trial.error_file).read_text())

        def __call__(self, trial_id: str, result: Any) -> bool:
            return False

        def stop_all(self) -> bool:
            return driver.error is not None

    return Start(), Tell()
