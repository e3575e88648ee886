"""No finished result becomes stale because the library grows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from pydantic import Field, create_model

import calibrant.config.dependence as dependence
from calibrant.config.dependence import first_difference, identity, key
from calibrant.config.groups import FitSettings
from calibrant.config.loading import Settings, load_settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData
from calibrant.runs.run import Run
from calibrant.selective import Selector, Training
from calibrant.studies import STUDIES, Lab
from calibrant.studies.study_trial import StudyTrial
from calibrant.training import TrainingData, keys

HERE = Path(__file__).parent
STORED = json.loads((HERE / "stage_keys_of_0.1.0.json").read_text())
LABS = sorted(path.parent for path in (HERE.parents[1] / "results").glob("*/study.yaml"))
GROUPS = [name for name, field in Settings.model_fields.items() if isinstance(field.default, dependence.BaseModel)]


def _part(count: int, start: int, *, labels: bool = True) -> ArrayData:
    inputs = (torch.arange(count * 12).reshape(count, 3, 2, 2) + start) % 251
    return ArrayData(inputs.to(torch.uint8), torch.arange(count) % 4 if labels else None)


DATA = TrainingData(
    _part(8, 0), _part(4, 1), _part(4, 2), _part(4, 3, labels=False), {"far": _part(4, 4, labels=False)}
)


def _keys(settings: Settings) -> dict[str, dict[str, str]]:
    """The key of every stage of every scheme."""
    found = {}
    for scheme in Scheme.all()[:8]:
        fit = key(keys.fit_inputs(scheme, settings, DATA, None))
        trained = key(keys.finetune_inputs(scheme, settings, DATA, fit)) if scheme.ocm else fit
        predict = key(keys.predict_inputs(scheme, settings, DATA, trained))
        members = settings.posterior.members if scheme.bayesian else 1
        validate = key(keys.validate_inputs(trained, members, settings.report.bins))
        score = key(keys.score_inputs(settings, predict))
        select = key(keys.select_inputs(settings, score))
        found[str(scheme)] = {
            "fit": fit,
            "trained": trained,
            "predict": predict,
            "validate": validate,
            "score": score,
            "select": select,
        }
    return found


def _records(folder: Path) -> dict[str, tuple[Lab, StudyTrial]]:
    """Every committed record of `folder`, by its digest."""
    lab, found = Lab.load(folder), {}
    for study in STUDIES.values():
        if (folder / study.name).is_dir():
            own = study.within(lab)
            found |= {own.record(trial)["digest"]: (own, trial) for trial in study.needs(own)}
    return found


@pytest.mark.parametrize("case", STORED)
def test_the_stage_keys_of_0_1_0_stay(case: str) -> None:
    assert _keys(Settings.model_validate(STORED[case]["settings"])) == STORED[case]["keys"]


def _grown(group: str, default: object) -> type[Settings]:
    """Settings with one more field in `group`."""
    kind = type(getattr(Settings(), group))
    wider = create_model(f"Wider{kind.__name__}", __base__=kind, addition=(object, Field(default=default)))
    return create_model("Grown", __base__=Settings, **{group: (wider, wider())})


@pytest.mark.parametrize("default", [None, 0.5, (1, 2), {"a": 1}], ids=str)
@pytest.mark.parametrize("group", GROUPS)
def test_a_new_setting_with_a_default_changes_no_key_and_no_record(group: str, default: object) -> None:
    grown = _grown(group, default)
    for case in STORED.values():
        settings = grown.model_validate(case["settings"])
        assert _keys(settings) == case["keys"]
        assert identity(settings) == identity(Settings.model_validate(case["settings"]))
        values = settings.model_dump()
        values[group]["addition"] = "other"
        changed = grown.model_validate(values)
        assert first_difference(identity(settings), identity(changed))[0] == f"{group}.addition"


@pytest.mark.skipif(not LABS, reason="the source distribution holds no results")
def test_a_new_setting_with_a_default_leaves_the_committed_records_fresh(monkeypatch) -> None:
    records = {digest: found for folder in LABS for digest, found in _records(folder).items()}
    assert len(records) > 100
    for group in GROUPS:
        grown = _grown(group, 7)
        with monkeypatch.context() as patched:
            patched.setattr("calibrant.config.loading.Settings", grown)
            for digest, (lab, trial) in records.items():
                wider = replace(lab, settings=grown.model_validate(lab.settings.model_dump()))
                assert wider.digest(trial) == digest


def test_a_new_group_counts_only_where_it_is_changed() -> None:
    kind = create_model("New", __base__=dependence.BaseModel, option=(int, 3))
    grown = create_model("Grown", __base__=Settings, new=(kind, kind()))
    assert identity(grown()) == identity(Settings())
    assert identity(grown(new={"option": 4}))["new"] == {"option": 4}


def test_a_default_that_changes_later_does_not_hide_a_setting(monkeypatch) -> None:
    grown = _grown("fit", "second")
    monkeypatch.setattr(dependence, "INTRODUCED", {"fit.addition": "first"})
    assert identity(grown())["fit"]["addition"] == "second"
    values = grown().model_dump()
    values["fit"]["addition"] = "first"
    assert identity(grown.model_validate(values)) == identity(Settings())


def test_a_renamed_value_keeps_its_keys_and_is_read_under_both_names(monkeypatch) -> None:
    kind = create_model("Fit", __base__=FitSettings, optimizer=(Literal["stochastic", "adam"], "stochastic"))
    settings = create_model("Renaming", __base__=Settings, fit=(kind, kind()))
    monkeypatch.setattr(dependence, "RENAMED", {**dependence.RENAMED, "fit.optimizer": {"stochastic": "sgd"}})
    for case in STORED.values():
        assert case["settings"]["fit"]["optimizer"] == "sgd"
        renamed = settings.model_validate(case["settings"])
        assert renamed.fit.optimizer == "stochastic"
        assert _keys(renamed) == case["keys"]
        assert settings.model_validate(renamed.model_dump()) == renamed


def test_what_0_1_0_wrote_is_read(tmp_path: Path) -> None:
    stored = STORED["paper-code"]["settings"]
    assert stored["selector"]["variant"] == "published"
    then = ["engine.fuse=false", "data.mean=null", "data.std=null"]  # as they were at that time
    assert Settings.model_validate(stored) == load_settings("paper-code", overrides=then)
    confidence = torch.rand(50, generator=torch.Generator().manual_seed(0))
    selector = Selector(variant="authors_code", training=Training(steps=2)).fit(confidence, None, confidence > 0.5)
    config = selector.config()
    restored = Selector.from_state({**config, "variant": "published"}, selector.state_dict())
    assert restored.config() == config


def test_a_run_resumes_with_another_engine_and_report_only(tmp_path: Path) -> None:
    run, settings = Run(tmp_path / "run"), Settings()
    run.begin(settings, [Scheme()], "train")
    run.check(settings.with_("engine.device=cpu", "report.bins=10"))
    for override in ("engine.precision=64-true", "fit.rate=0.7", "outliers.bandwidth=3", "selector.variant=published"):
        name = override.partition("=")[0]
        with pytest.raises(ValueError, match=f"holds a run with {name}="):
            run.check(settings.with_(override))


@pytest.mark.parametrize("swap", [False, True])
def test_options_that_only_one_side_has_are_told_apart(tmp_path: Path, swap: bool) -> None:
    plain = Settings().with_("calibration.regularizer=focal")
    sides = (plain, plain.with_("calibration.options.gamma=3"))
    asked, stored = sides if swap else sides[::-1]
    run = Run(tmp_path / "run")
    run.begin(stored, [Scheme()], "train")
    with pytest.raises(ValueError, match=r"holds a run with calibration\.options\.gamma="):
        run.check(asked)
