"""The jobs that studies are made of, each resumable (choose lambda, train, measure), and how they are run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.config.dependence import key
from calibrant.config.loading import Settings
from calibrant.runs.executor import Listener, Processes, Send, Serial, Task
from calibrant.runs.failures import described, worst
from calibrant.studies.journal import Journal
from calibrant.studies.lab import Lab, write_compact
from calibrant.studies.measuring import detectors, lightened, measure
from calibrant.studies.posterior_measuring import measure_posterior
from calibrant.studies.readouts import evaluation_of, predictions_of
from calibrant.studies.study_trial import StudyTrial
from calibrant.training import Workspace, open_data, select_lambda


@dataclass(frozen=True)
class Choice:
    """A choice of lambda: of the calibrated base `scheme` with `regularizer` (None: the settings')."""

    scheme: str
    regularizer: str | None = None
    grid: tuple[float, ...] = ()


@dataclass(frozen=True)
class Job:
    """One piece of work and the names of the jobs that must be done before it.

    `kind` is "validate" (a network for the choice of lambda), "choose", "train" or "measure".
    """

    kind: str
    trial: StudyTrial
    after: tuple[str, ...] = ()
    trials: tuple[StudyTrial, ...] = ()
    coverages: tuple[tuple[float, ...], ...] = ()
    choice: Choice | None = None

    @property
    def name(self) -> str:
        """Unique among the jobs of a run."""
        return f"{self.kind} {self.trial.name}"


def run_jobs(lab: Lab, jobs: Sequence[Job], *, workers: int = 1) -> None:
    """Do all `jobs`, each after those it needs, in this process or in worker processes; what was stopped resumes.

    A job that fails keeps back only those that need it; the failures are told at the end, in an error of the
    worst of their kinds.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, not {workers}")
    if not jobs:
        return
    executor, bars = (Serial(), None) if workers == 1 else (Processes(workers), False)
    tasks = [Task(job.name, execute, (lab, job, bars), job.after) for job in jobs]
    journal = Journal(len(jobs), bar=workers > 1 and sys.stderr.isatty())
    with journal.shown():
        executor.run(tasks, Listener(on_start=journal.start, on_end=journal.end))
    if journal.failures:
        told = "; ".join(f"{name}: {described(error)}" for name, error in journal.failures.items())
        raise worst([*journal.failures.values()], f"{len(journal.failures)} of {len(jobs)} jobs failed: {told}")


def execute(argument: tuple[Lab, Job, bool | None], send: Send) -> None:
    """Do a job of a lab, with or without progress bars; whatever is done already is not done again."""
    lab, job, progress = argument
    workspace = open_workspace(lab.settings.model_dump_json(), job.trial.seed, lab.runs, progress)
    if job.kind == "train":
        workspace.with_settings(*job.trial.overrides).history(job.trial.scheme)
    elif job.kind == "validate":
        workspace.with_settings(*job.trial.overrides).validation(job.trial.scheme)
    elif job.kind == "choose":
        assert job.choice is not None
        _choose(lab, workspace.with_settings(*job.trial.overrides), job.choice)
    else:
        for trial, coverages in zip(job.trials, job.coverages):
            if not lab.is_fresh(trial, coverages):
                _measure(lab, workspace, trial, coverages)


@lru_cache(maxsize=1)
def open_workspace(settings: str, seed: int, runs: Path, progress: bool | None) -> Workspace:
    """The workspace of one seed; its data stay in memory until another seed is asked for."""
    chosen = Settings.model_validate_json(settings).with_(f"seed={seed}")
    return Workspace(open_data(chosen.data, seed), chosen, runs, progress=progress)


def _measure(lab: Lab, workspace: Workspace, trial: StudyTrial, coverages: Sequence[float]) -> None:
    predictions, temperature = predictions_of(workspace, trial)
    evaluation = evaluation_of(workspace, trial, predictions)
    count, bins = lab.plan.resamples, workspace.settings.report.bins
    if trial.posterior is None:
        measures = measure(evaluation, coverages, bins=bins, count=count)
    else:
        measures = measure_posterior(evaluation, predictions["test"].probabilities, coverages, bins=bins, count=count)
    own = workspace.with_settings(*trial.overrides)
    content: dict[str, Any] = {
        "knobs": {name: value for name, value in asdict(trial).items() if value not in (None, ())},
        "temperature": temperature,
        "training": {key: round(value, 6) for key, value in own.history(trial.scheme)[-1].items()},
        "validation": _validation(predictions),
        **measures,
    }
    if trial.parsed.selective and trial.readout == "scheme" and trial.eta is None:
        content["detectors"] = detectors(predictions, count)
    lab.write_record(trial, lightened(content, lab.plan.drawn if trial.posterior is None else None))


def _validation(predictions: Mapping[str, Any]) -> dict[str, float]:
    from calibrant.metrics import expected_calibration_error

    held_out = predictions["validation"]
    return {
        "accuracy": round(float(held_out.correct.float().mean()), 6),
        "ece": round(expected_calibration_error(held_out.confidence, held_out.correct), 6),
        "cross_entropy": round(float(held_out.cross_entropy.mean()), 6),
    }


def _choose(lab: Lab, workspace: Workspace, choice: Choice) -> None:
    found = select_lambda(workspace, choice.scheme, choice.grid)
    content = {
        "digest": choice_digest(lab, choice),
        "scheme": choice.scheme,
        "regularizer": workspace.settings.calibration.regularizer,
        "seed": workspace.settings.seed,
        "epochs": workspace.settings.fit.epochs,
        "epochs_of_a_full_fit": lab.settings.fit.epochs,
        "max_accuracy_drop": workspace.settings.calibration.max_accuracy_drop,
        "weight": found.weight,
        "validation": [asdict(one) for one in (found.baseline, *found.trials)],
    }
    write_compact(lab.choice_path(choice.scheme, choice.regularizer), content)


def choice_digest(lab: Lab, choice: Choice) -> str:
    """What a choice depends on, hashed."""
    trial = choice_trial(lab, choice)
    return key(
        {
            "settings": lab.digest(replace(trial, weight=1.0)),
            "grid": list(choice.grid),
            "drop": lab.settings.calibration.max_accuracy_drop,
            "members": lab.settings.posterior.members,
        }
    )


def choice_trial(lab: Lab, choice: Choice) -> StudyTrial:
    """The fits that a choice is made on: of the first seed, shortened as the plan says."""
    full, part = lab.settings.fit.epochs, lab.plan.selection_epochs
    epochs = None if part == 1 else max(1, round(full * part))
    return StudyTrial(choice.scheme, lab.seeds[0], regularizer=choice.regularizer, epochs=epochs)


def is_chosen(lab: Lab, choice: Choice) -> bool:
    """Whether `choice` is made already, with these settings."""
    path = lab.choice_path(choice.scheme, choice.regularizer)
    return path.exists() and lab.choice(choice.scheme, choice.regularizer)["digest"] == choice_digest(lab, choice)
