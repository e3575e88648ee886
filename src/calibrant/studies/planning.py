"""From what studies need to jobs: every network once, parents first, seeds in turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from calibrant.studies.jobs import Choice, Job, choice_trial, is_chosen
from calibrant.studies.lab import Lab
from calibrant.studies.study_trial import StudyTrial

Needs = Mapping[StudyTrial, tuple[float, ...]]


def choice_jobs(lab: Lab, choices: Iterable[Choice]) -> list[Job]:
    """The fits behind every choice that is not made yet, and the choices."""
    jobs: dict[str, Job] = {}
    for choice in dict.fromkeys(choices):
        if is_chosen(lab, choice):
            continue
        trial = choice_trial(lab, choice)
        plain = replace(trial, scheme=str(replace(trial.parsed, calibrated=False)), regularizer=None)
        fits = [plain, *(replace(trial, weight=float(weight)) for weight in choice.grid)]
        before = [Job("validate", fit) for fit in fits]
        jobs.update({job.name: job for job in before})
        last = Job("choose", trial, tuple(job.name for job in before), choice=choice)
        jobs[last.name] = last
    return sorted(jobs.values(), key=lambda job: job.kind == "choose")


def trial_jobs(lab: Lab, needs: Needs) -> list[Job]:
    """What is left to do for the records of `needs`, which says at what coverages each trial is measured."""
    units: dict[StudyTrial, list[StudyTrial]] = {}
    for trial, coverages in needs.items():
        if not lab.is_fresh(trial, coverages):
            units.setdefault(trial.unit, []).append(trial)
    jobs: dict[str, Job] = {}
    for unit, trials in units.items():
        for network in filter(None, (unit.parent, unit)):
            after = () if network.parent is None else (Job("train", network.parent).name,)
            job = Job("train", network, after)
            jobs.setdefault(job.name, job)
        # selective schemes first: their pass over the data gives the plain predictions too
        ordered = tuple(sorted(trials, key=lambda one: (not one.parsed.selective, one.name)))
        wanted = tuple(needs[one] for one in ordered)
        last = Job("measure", unit, (Job("train", unit).name,), ordered, wanted)
        jobs[last.name] = last
    return sorted(jobs.values(), key=partial(_order, lab))


def _order(lab: Lab, job: Job) -> tuple[int, int, int]:
    """Seed by seed and base scheme by base scheme, so that what is finished is complete; fits before fine-tunings."""
    base, schemes = str(job.trial.parsed.base), lab.plan.schemes
    depth = {"train": 1 if job.trial.parsed.ocm else 0, "measure": 2}[job.kind]
    return job.trial.seed, schemes.index(base) if base in schemes else len(schemes), depth
