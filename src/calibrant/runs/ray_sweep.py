"""Trials on Ray Tune: as many at a time as the cluster has room for, early stopping, retries of trials that die.

A trial trains in the shared run directory, so that one which was killed goes on at its last checkpoint wherever it is
started again, and Ray Tune itself has nothing to keep: its own files go to a temporary folder.
"""

from __future__ import annotations

import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calibrant.files import read_csv
from calibrant.runs.ray_cluster import cluster, environment
from calibrant.runs.resources import Resources
from calibrant.training.sweeps.grid import BASELINE
from calibrant.training.sweeps.trials import Job, OnEnd, Outcome, open_workspace, run_job

EPOCH, METRIC = "epoch", "validation_cross_entropy"
_LOOK = 0.2  # seconds between two looks at the metrics of a running trial
_TUNE = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is ours: the command line says how to go on
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last report of a trial has an outcome in place of the metric
    "RAY_AIR_NEW_OUTPUT": "0",  # which prints to standard output even where it is told to be silent
}


@dataclass(frozen=True)
class RayEngine:
    """Trials on the Ray cluster at `address`; None starts one on this machine, "auto" takes the one that runs here.

    Args:
        address: the only difference between one node and many.
        resources: of one trial.
        retries: how often a trial whose process died, or that failed unexpectedly, is started again.
        asha: stop trials early whose validation cross-entropy falls behind (asynchronous successive halving). It is a
            proper score, low only for what is both accurate and calibrated; the ECE alone is low for a network that
            has learnt nothing yet.
    """

    address: str | None = None
    resources: Resources = field(default_factory=Resources)
    retries: int = 2
    asha: bool = False

    def run(self, jobs: Sequence[Job], on_end: OnEnd) -> None:
        """Run `jobs` and tell how each ended."""
        with cluster(self.address) as ray, environment(_TUNE), tempfile.TemporaryDirectory() as folder:
            self._check_room(ray)
            self._tune([self._placed(job) for job in jobs], on_end, folder)

    def _placed(self, job: Job) -> Job:
        """`job` on the processor, unless it was given an accelerator or told to take one."""
        if self.resources.gpu or job.settings.engine.device != "auto":
            return job
        return replace(job, settings=job.settings.with_("engine.device=cpu"))

    def _check_room(self, ray: Any) -> None:
        """Refuse resources that no node has; Ray would wait for them for ever."""
        wanted = {"CPU": self.resources.cpu, "GPU": self.resources.gpu, **self.resources.custom}
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            best = {name: max(node.get(name, 0) for node in nodes) for name in wanted}
            raise ValueError(f"resources {wanted} of a trial are more than any node of the cluster has: {best}")

    def _tune(self, jobs: Sequence[Job], on_end: OnEnd, folder: str) -> None:
        from ray import tune

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # failures are in the table, each with its reason
        trainable = tune.with_resources(
            tune.with_parameters(_trial, jobs=tuple(jobs), threads=self.resources.cpu, follow=self.asha),
            self.resources.for_tune(),
        )
        found = tune.Tuner(
            trainable,
            param_space={"trial": tune.grid_search(list(range(len(jobs))))},
            # A process serves many trials, unless one of them may have been stopped in the middle of its training.
            tune_config=tune.TuneConfig(scheduler=self._scheduler(jobs), reuse_actors=not self.asha),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=folder,
                failure_config=tune.FailureConfig(max_failures=self.retries),
                callbacks=[_listener(jobs, on_end)],
                verbose=0,
            ),
        )
        found.fit()

    def _scheduler(self, jobs: Sequence[Job]) -> Any:
        if not self.asha:
            return None
        from ray.tune.schedulers import ASHAScheduler

        epochs = max(job.epochs for job in jobs)
        return ASHAScheduler(
            time_attr=EPOCH, metric=METRIC, mode="min", max_t=epochs + 1, grace_period=max(1, epochs // 8)
        )


def _trial(config: dict[str, Any], *, jobs: Sequence[Job], threads: int, follow: bool) -> None:
    """What a worker does: the trial, reporting every epoch where someone may want to stop it."""
    from ray import tune

    job = jobs[config["trial"]]
    if not job.out.is_dir():
        reason = f"{job.out} is not there on {socket.gethostname()}; put --out into a folder that all nodes share"
        tune.report(_last(Outcome("failed", reason=reason)))
        return
    stoppable = follow and job.name != BASELINE
    outcome = _followed(job, threads, tune.report) if stoppable else run_job(job, threads=threads)
    tune.report(_last(outcome))


def _last(outcome: Outcome) -> dict[str, Any]:
    """The last report. It lacks the metric, so that whoever did not report every epoch is no measure for others."""
    return {"outcome": asdict(outcome)}


def _followed(job: Job, threads: int, report: Callable[[dict[str, Any]], None]) -> Outcome:
    """Run `job` in a thread, and report the rows of its metrics as they appear; the last is left to the outcome."""
    done: list[Outcome | BaseException] = []

    def work() -> None:
        try:
            done.append(run_job(job, threads=threads))
        except BaseException as error:
            done.append(error)

    thread = threading.Thread(target=work, daemon=True)  # dies with the process when the trial is stopped
    thread.start()
    for row in _new_rows(job, thread):
        if row[EPOCH] < job.epochs:
            report({**row, EPOCH: int(row[EPOCH])})
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0]


def _new_rows(job: Job, thread: threading.Thread) -> Iterator[dict[str, float]]:
    """The rows of the last stage's metrics, each once, until `thread` has ended."""
    stage = open_workspace(job.settings, job.out).stage(job.scheme)
    told = 0
    while thread.is_alive():
        thread.join(_LOOK)
        assert stage.path is not None
        rows = read_csv(stage.path / "metrics.csv") if (stage.path / "metrics.csv").exists() else []
        yield from (row for row in rows[told:] if METRIC in row)
        told = max(told, len(rows))


def _listener(jobs: Sequence[Job], on_end: OnEnd) -> Any:
    """A callback of Ray Tune that tells how every trial ended."""
    from ray.tune import Callback

    class Listener(Callback):  # type: ignore[misc]
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            job = jobs[trial.config["trial"]]
            reported = trial.last_result.get("outcome")
            epoch = trial.last_result.get(EPOCH)
            stopped = Outcome("stopped", reason=f"early, after epoch {epoch} of {job.epochs}")
            on_end(job, stopped if reported is None else Outcome(**reported))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            job = jobs[trial.config["trial"]]
            lines = str(trial.get_error() or "").strip().splitlines()
            on_end(job, Outcome("failed", reason=lines[-1].strip() if lines else "its process died"))

    return Listener()
