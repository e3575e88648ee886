"""The folder of results: settings, the plan, records of trials and choices of lambda, and how they are read.

    RESULTS/settings.yaml, study.yaml    what was asked for
    RESULTS/records/NAME.parquet         the measures of one trial
    RESULTS/choices/NAME.json            a choice of lambda, with all that was tried
    RESULTS/STUDY/                       table.csv, table.md, figures, page.html: made from the above alone

The run directory with the networks is elsewhere (`runs`), shared by all studies, and not needed afterwards.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calibrant import InputError
from calibrant.config.dependence import identity, key
from calibrant.config.loading import Settings, load_settings, read_yaml
from calibrant.files import RunError, read_entries, write_bytes
from calibrant.metrics.functional import Bounds
from calibrant.studies.estimates import ANY, Estimate, bounds_of, over_seeds
from calibrant.studies.measuring import DIGITS
from calibrant.studies.plan import StudyPlan, parse_plan
from calibrant.studies.records import find_record, read_header, read_record, write_record
from calibrant.studies.study_trial import StudyTrial

FORMAT = 1
AGAIN = "delete it, and `reproduce` makes it anew"
_CHOICE = {"digest": str, "seed": int, "epochs": int, "weight": (int, float), "validation": list}


class MissingRecord(InputError):  # noqa: N818  (it is mostly no error: the study was not run)
    """A record that is not there."""


@dataclass(frozen=True)
class Lab:
    """Settings and plan of some studies, where their results lie (`results`) and where their networks do (`runs`)."""

    settings: Settings
    plan: StudyPlan
    results: Path
    runs: Path | None = None

    @classmethod
    def load(cls, results: str | Path) -> Lab:
        """A finished folder of results, to draw from."""
        folder = Path(results)
        if not (folder / "study.yaml").is_file():
            raise InputError(f"{folder} holds no results (no study.yaml); name a folder that `reproduce` wrote")
        plan = parse_plan(read_yaml(folder / "study.yaml", "study"))
        return cls(load_settings(file=folder / "settings.yaml"), plan, folder)

    def save(self) -> None:
        """Write settings and plan."""
        write_bytes(self.results / "settings.yaml", self.portable_settings().encode())
        write_bytes(self.results / "study.yaml", self.plan_yaml().encode())

    def portable_settings(self) -> str:
        """The settings as YAML, without where files lie on this machine."""
        values = self.settings.model_dump(mode="json")
        values["data"]["root"] = None
        for group, name in (("data", "splits"), ("data", "uncertainty_splits"), ("backbone", "weights")):
            values[group][name] = values[group][name] and Path(values[group][name]).name
        return yaml.safe_dump(values, sort_keys=False)

    def plan_yaml(self) -> str:
        """The plan as YAML."""
        return yaml.safe_dump(self.plan.model_dump(mode="json"), sort_keys=False)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every trial; the first one chooses lambda."""
        return self.plan.seeds

    def digest(self, trial: StudyTrial) -> str:
        """What a record of `trial` depends on, hashed."""
        return key({"format": FORMAT, **_relevant(self.settings.with_(*trial.overrides), trial)})

    def path(self, trial: StudyTrial) -> Path:
        """The file of the record."""
        return self.results / "records" / f"{trial.name}.parquet"

    def is_fresh(self, trial: StudyTrial, coverages: Sequence[float]) -> bool:
        """Whether the record of `trial` is there, of these settings, and measured at all of `coverages`."""
        path = find_record(self.path(trial))
        if path is None:
            return False
        record = read_header(path)
        wanted = {at["wanted"] for at in record["at"]}
        same = record["digest"] == self.digest(trial) and record["resamples"] == self.plan.resamples
        return bool(same and set(coverages) <= wanted)

    def record(self, trial: StudyTrial) -> dict[str, Any]:
        """The record of `trial`."""
        path = find_record(self.path(trial))
        if path is None:
            raise MissingRecord(f"{self.path(trial)} is missing: the study has not been run to its end")
        about = path.stat()
        return _cached_record(path, (about.st_mtime_ns, about.st_ino, about.st_size))

    def write_record(self, trial: StudyTrial, content: dict[str, Any]) -> None:
        """Keep the measures of `trial`."""
        about = {"format": FORMAT, "trial": trial.name, "scheme": trial.scheme, "seed": trial.seed}
        full = {**about, "digest": self.digest(trial), "resamples": self.plan.resamples, **content}
        write_record(self.path(trial), full)
        _cached_record.cache_clear()  # a file may be written twice at one time, if the clock is coarse or was set back

    def each_seed(self, trial: StudyTrial) -> list[StudyTrial]:
        """`trial` with every seed."""
        return [replace(trial, seed=seed) for seed in self.seeds]

    def at(self, trial: StudyTrial, coverage: float = 1.0) -> dict[str, Any]:
        """What the record of `trial` holds at a wanted coverage."""
        for found in self.record(trial)["at"]:
            if abs(found["wanted"] - coverage) < 1e-9:
                return dict(found)
        raise MissingRecord(f"the record of {trial.name} holds nothing at coverage {coverage:g}; run the study again")

    def has(self, trial: StudyTrial, measure: str, coverage: float = 1.0) -> bool:
        """Whether the records of all seeds hold `measure`; those written before it was declared do not."""
        return all(measure in self.at(one, coverage)["measures"] for one in self.each_seed(trial))

    def estimate(self, trial: StudyTrial, measure: str, coverage: float = 1.0) -> Estimate:
        """The mean over seeds of `measure`, such as "ece" or "detection:lsun-resize"."""
        entries = [self.at(one, coverage)["measures"][measure] for one in self.each_seed(trial)]
        return combine(entries, bounds_of(measure))

    def score_estimate(self, trial: StudyTrial, score: str, measure: str) -> Estimate:
        """The mean over seeds of "auroc:SET" or "fpr95:SET" of an OOD score."""
        entries = [self.record(one)["detectors"][score][measure] for one in self.each_seed(trial)]
        return combine(entries, bounds_of(measure))

    def ood_sets(self, trial: StudyTrial) -> list[str]:
        """The OOD sets in the record of `trial`; the first is of the kind of D_u."""
        return [name for name in self.record(replace(trial, seed=self.seeds[0]))["sizes"] if name != "test"]

    def choice_path(self, scheme: str, regularizer: str | None = None) -> Path:
        """The file of a choice of lambda."""
        return self.results / "choices" / f"{'_'.join(filter(None, [scheme, regularizer]))}.json"

    def chosen(self, scheme: str, regularizer: str | None = None) -> float:
        """The lambda that was chosen for the calibrated base `scheme`."""
        return float(self.choice(scheme, regularizer)["weight"])

    def choice(self, scheme: str, regularizer: str | None = None) -> dict[str, Any]:
        """The choice of lambda for the calibrated base `scheme`, with all that was tried."""
        path = self.choice_path(scheme, regularizer)
        if not path.exists():
            raise MissingRecord(f"{path} is missing: lambda of {scheme} is not chosen yet; run the study")
        choice = read_entries(path, _CHOICE, AGAIN)
        fits = [fit.get("weight") if isinstance(fit, dict) else None for fit in choice["validation"]]
        if not all(type(one) in (int, float) and 0 <= one < math.inf for one in (choice["weight"], *fits)):
            raise RunError(f"{path} was altered (a weight is no number from 0 on); {AGAIN}")
        return choice


def combine(entries: Sequence[dict[str, Any]], bounds: Bounds = ANY) -> Estimate:
    """Entries of records, one a seed, as one estimate; NaN where one is undefined, and no draws where one has none."""
    values = [np.nan if one["value"] is None else one["value"] for one in entries]
    if any(not one["draws"] for one in entries):
        return Estimate(float(np.mean(values)), np.full(2, np.nan), bounds)
    draws = np.array([[np.nan if d is None else d for d in one["draws"]] for one in entries], np.float64)
    return over_seeds(values, draws / 10**DIGITS, bounds)


def write_compact(path: Path, content: dict[str, Any]) -> None:
    """JSON with one line for each top entry and each list below, so that files stay small and diffs readable."""
    lines = [f" {json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in content.items()]
    write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


@lru_cache(maxsize=512)
def _cached_record(path: Path, changed: tuple[int, ...]) -> dict[str, Any]:
    return read_record(path)


def _relevant(settings: Settings, trial: StudyTrial) -> dict[str, Any]:
    """The settings that a trial's measures depend on; not where files lie or how results are drawn."""
    values, scheme = identity(settings), trial.parsed
    kept = {"seed": trial.seed, "readout": trial.readout, "precision": values["engine"]["precision"]}
    for name in ("data", "augmentation", "backbone", "fit"):
        kept[name] = values[name]
    for name in ("root", "splits", "uncertainty_splits"):
        kept["data"].pop(name)
    if "weights" in kept["backbone"]:
        kept["backbone"]["weights"] = Path(kept["backbone"]["weights"]).name
    kept["bins"], kept["threshold"] = values["report"]["bins"], values["selector"]["threshold"]
    if scheme.bayesian:
        kept["posterior"] = values["posterior"]
    if scheme.calibrated:
        calibration = values["calibration"]
        weight = calibration["weight"][scheme.family]
        kept["calibration"] = [calibration["regularizer"], calibration["options"], calibration["share"], weight]
    if scheme.ocm:
        kept["finetune"] = values["finetune"]
    if "calibrator" in values and trial.readout != "temperature":
        kept["calibrator"] = values["calibrator"]
    if settings.rule.name != "confidence" and not scheme.selective:
        kept["rule"] = values["rule"]
    if scheme.selective:
        kept["outliers"], kept["selector"] = values["outliers"], values["selector"]
    return kept
