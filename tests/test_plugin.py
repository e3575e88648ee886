"""The slots are open: a user's module fills each of them, and commands show what it brings by name."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import Caller, call, read_rows, run
from predictors import CLASSES, SHAPE, digits, posterior

import calibrant
from calibrant import slots
from calibrant.backbones import build
from calibrant.config.dependence import identity, key
from calibrant.config.groups import DataSettings
from calibrant.config.loading import Settings, load_settings
from calibrant.config.schemes import Scheme
from calibrant.deploy import Backbone, Predictor, load
from calibrant.deploy.saving import describe
from calibrant.detectors import OutlierScores
from calibrant.metrics import declarations
from calibrant.selective import Selector, Training
from calibrant.training import keys, open_data

__all__ = ["call"]
IDEAS = Path(__file__).parent / "own_ideas.py"
DOCS = Path(__file__).parents[1] / "docs" / "cli.md"
MODULE = "own_ideas"
NEEDED = r"the plugin own_ideas is needed, but not (loaded|registered): add --plugin own_ideas to the command"
NAMES = {
    "posterior": {"own_jitter"},
    "regularizer": {"own_gap"},
    "calibrator": {"own_mixing"},
    "detector": {"own_radius", "own_margin"},
    "objective": {"own_brier"},
    "source": {"own_bars"},
    "synthesizer": {"own_transpose"},
}
SMALL = [
    "data.train=200",
    "data.validation=100",
    "data.test=60",
    "backbone.name=mlp-16",
    "posterior.members=2",
    "fit.epochs=1",
    "outliers.max_points=100",
    "selector.steps=20",
    "report.resamples=20",
]
DATA = ["data.source=own_bars?count=400", 'data.ood=["own_bars?shift=1"]']
SLOTS = [
    "calibration.regularizer=own_gap",
    "calibration.options.power=1",
    "posterior.family=own_jitter",
    "posterior.options.std=0.02",
    "calibrator.name=own_mixing",
    "outliers.scores=[own_radius, own_margin]",
    "outliers.options={own_radius: {p: 1}}",
    "selector.objective=own_brier",
    "rule.detectors=[own_radius, own_margin]",
    "rule.synthesizers=[own_transpose]",
]
OUTLIERS = ["data.uncertainty=own_bars?shift=2", "data.uncertainty_size=100"]
STUDY = ["calibration.grid=[0.2]", "finetune.epochs=1", "finetune.examples_per_epoch=100", "study.resamples=5"]
STUDY += ["study.regularizers={}", "study.coverages=[1]"]


def given(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("-o", setting)]


def put(folder: Path) -> Path:
    """The module in `folder`; when it is imported it leaves a file behind."""
    mark = "\nfrom pathlib import Path\n\nPath(__file__).with_name('imported').touch()\n"
    (folder / f"{MODULE}.py").write_text(IDEAS.read_text() + mark)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the module and a run of two schemes, and what `train` printed."""
    folder = put(tmp_path_factory.mktemp("plugin"))
    settings = given(*SMALL, *DATA, *SLOTS, "rule.name=trust")
    done = run("train", "--plugin", MODULE, *settings, "-s", "SCBNN", "-s", "CFNN", "--out", "run", cwd=folder)
    return folder, done.stdout


def test_train_uses_and_shows_them(home: tuple[Path, str]) -> None:
    folder, printed = home
    assert (folder / "imported").exists()
    assert "own errors" in printed
    assert "own_bars" in printed
    assert "calibrant report run --plugin own_ideas" in printed
    rows = read_rows(folder / "run" / "table.csv")
    assert {row["ood"] for row in rows} == {"own_bars"}
    assert all(0 <= float(row["own_errors_low"]) <= float(row["own_errors"]) <= 1 for row in rows)
    settings = (folder / "run" / "settings.yaml").read_text()
    assert "plugins:\n- own_ideas\n" in settings
    stages = {path.name.rpartition("-")[0] for path in (folder / "run" / "stages").iterdir()}
    assert {"fit-CFNN", "fit-CBNN", "select-SCBNN", "rule-CFNN"} <= stages


def test_the_page_shows_each_by_name(home: tuple[Path, str]) -> None:
    folder, _ = home
    run("report", "run", "--plugin", MODULE, "--out", "page.html", cwd=folder)
    page = (folder / "page.html").read_text()
    assert all(name in page for names in NAMES.values() for name in names)
    assert "own errors" in page
    assert "wrong with a confidence above one half" in page


def test_predict_and_info_show_what_a_predictor_has(home: tuple[Path, str]) -> None:
    folder, _ = home
    plugin = ["--plugin", MODULE, "-s", "SCBNN"]
    run("predict", "run", "own_bars?shift=3&count=40", *plugin, "--out", "p.csv", cwd=folder)
    rows = read_rows(folder / "p.csv")
    assert len(rows) == 40
    assert {"outlier_own_radius", "outlier_own_margin"} <= set(rows[0])
    assert max(float(row["confidence"]) for row in rows) <= 0.9 + 0.1 / 4 + 1e-6  # the calibrator's mixture
    about = json.loads(run("info", "predictor", "run", *plugin, "--json", cwd=folder).stdout)
    assert about["calibrator"] == "own_mixing"
    assert about["seen"] > 0
    assert about["objective"] == "own_brier"
    assert about["outlier scores"] == ["own_radius", "own_margin"]
    assert about["members"] == 2


def test_info_lists_them_with_their_options(home: tuple[Path, str]) -> None:
    folder, _ = home
    listed = json.loads(run("info", "slots", "--plugin", MODULE, "--json", cwd=folder).stdout)
    own = {(row["kind"], row["name"]): row for row in listed if row["module"] == MODULE}
    assert set(own) == {(kind, name) for kind, names in NAMES.items() for name in names}
    assert own["regularizer", "own_gap"]["options"] == {"power": 2}
    assert own["source", "own_bars"]["options"] == {"count": "300", "shift": "0"}
    assert own["posterior", "own_jitter"]["options"] == {"std": 0.01}
    assert own["objective", "own_brier"]["description"].startswith("The accepted examples' mean squared error")
    ours = {row["module"].partition(".")[0] for row in listed} - {MODULE}
    assert ours == {"calibrant"}


def test_studies_show_them_also_from_worker_processes(home: tuple[Path, str], call: Caller) -> None:
    folder, _ = home
    settings = given(*SMALL, *DATA, *OUTLIERS, *SLOTS, *STUDY)
    common = ["--profile", "embedded", "--plugin", MODULE, *settings, "--out", "results", "--runs", "runs"]
    run("reproduce", "regularizers", *common, cwd=folder)
    rows = read_rows(folder / "results" / "regularizers" / "table.csv")
    assert [row["system"] for row in rows if row["regularizer"] == "own_gap"] == ["CFNN", "CBNN"]
    assert {"own errors", "AUROC, own_bars"} <= set(rows[0])
    run("reproduce", "ood-scores", *common, "--workers", "2", cwd=folder)
    with (folder / "results" / "ood-scores" / "table.csv").open() as file:
        scores = {row["score"] for row in csv.DictReader(file)}
    assert {"own radius", "own margin"} <= scores
    for study in ("regularizers", "ood-scores"):
        page = (folder / "results" / study / "page.html").read_text()
        assert all(name in page for names in NAMES.values() for name in names)
    assert "own errors" in (folder / "results" / "regularizers" / "page.html").read_text()
    complaint = call.refused("reproduce", "ood-scores", "--from", folder / "results")
    assert "the plugin own_ideas is needed, but not loaded: add --plugin own_ideas" in complaint
    assert MODULE not in sys.modules


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "--resume", "--out", "run"], NEEDED),
        (["report", "run"], NEEDED),
        (["evaluate", "run"], NEEDED),
        (["info", "predictor", "run", "-s", "SCBNN"], NEEDED),
        (["predict", "run", "embedded", "-s", "SCBNN", "--out", "q.csv"], NEEDED),
        (["predict", "run", "embedded", "-s", "CFNN", "--out", "q.csv"], NEEDED),
        (["data", "own_bars"], "another one needs --plugin MODULE"),
        (["train", "--out", "other", *given("selector.objective=own_brier")], "another one needs --plugin MODULE"),
        (["train", "--plugin", "own_idea", "--out", "other"], "plugin own_idea cannot be imported"),
    ],
)
def test_a_missing_plugin_is_named_and_nothing_is_imported(
    home: tuple[Path, str], call: Caller, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    monkeypatch.chdir(home[0])
    monkeypatch.syspath_prepend(home[0])  # it could be imported
    (home[0] / "imported").unlink(missing_ok=True)
    complaint = call.refused(*arguments)
    assert re.search(sentence, complaint)
    assert MODULE not in sys.modules
    assert not (home[0] / "imported").exists()
    assert not (home[0] / "other").exists()


@pytest.fixture
def ideas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The module, imported in this process and forgotten after the test."""
    declarations.catalogue()
    for kind in slots.ROOMS:
        for name in slots.names(kind):
            slots.registration(kind, name)
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))
    monkeypatch.setattr(slots, "_plugins", {})
    monkeypatch.setattr(declarations, "_declared", dict(declarations._declared))
    monkeypatch.syspath_prepend(put(tmp_path))
    slots.load_plugins([MODULE])
    yield
    del sys.modules[MODULE]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the module had not been imported."""
    ours = {name: known for name, known in slots._registered.items() if known.module != MODULE}
    monkeypatch.setattr(slots, "_registered", ours)


def stage_keys(settings: Settings) -> dict[str, str]:
    """The keys of all stages but prediction; the data are embedded."""
    data, scheme = open_data(DataSettings(validation=100), 0), Scheme.parse("CBNN")
    inputs = {
        "fit": keys.fit_inputs(scheme, settings, data, None),
        "calibrate": keys.calibrate_inputs(settings, "parent"),
        "score": keys.score_inputs(settings, "parent"),
        "select": keys.select_inputs(settings, "parent"),
        "rule": keys.rule_inputs(settings, "parent", None, None, None),
    }
    return {stage: key(content) for stage, content in inputs.items()}


def different(before: dict[str, Any], after: dict[str, Any]) -> set[str]:
    return {name for name in {*before, *after} if before.get(name) != after.get(name)}


@pytest.mark.usefixtures("ideas")
@pytest.mark.parametrize(
    ("kind", "group", "stages"),
    [
        ("posterior", {"posterior"}, {"fit"}),
        ("regularizer", {"calibration"}, {"fit"}),
        ("calibrator", {"calibrator"}, {"calibrate"}),
        ("detector", {"outliers", "rule"}, {"score", "rule"}),
        ("objective", {"selector"}, {"select"}),
        ("synthesizer", {"rule"}, {"rule"}),
        ("source", {"data"}, set()),  # stages depend on the examples themselves
    ],
)
def test_a_plugin_counts_by_its_version(kind: str, group: set[str], stages: set[str]) -> None:
    settings = load_settings(overrides=[*DATA, *SLOTS])
    counted, before = identity(settings), stage_keys(settings)
    for name in NAMES[kind]:
        slots.register(kind, name, version="1")(slots.lookup(kind, name))
    assert (identity(settings), stage_keys(settings)) == (counted, before)
    for name in NAMES[kind]:
        slots.register(kind, name, version="2")(slots.lookup(kind, name))
    assert different(counted, identity(settings)) == group
    assert different(before, stage_keys(settings)) == stages


@pytest.mark.usefixtures("ideas")
@pytest.mark.parametrize(
    ("option", "stages"),
    [
        ("posterior.options.std=0.5", {"fit"}),
        ("calibration.options.power=2", {"fit"}),
        ("calibrator.options.share=0.5", {"calibrate"}),
        ("outliers.options={own_radius: {p: 2}}", {"score"}),
        ("selector.options.penalty=8", {"select"}),
    ],
)
def test_a_plugin_counts_by_its_options(option: str, stages: set[str]) -> None:
    settings = load_settings(overrides=[*DATA, *SLOTS])
    assert different(stage_keys(settings), stage_keys(settings.with_(option))) == stages


@pytest.mark.usefixtures("ideas")
def test_a_measure_and_the_module_itself_change_no_key() -> None:
    settings = load_settings(overrides=[*DATA, *SLOTS])
    before = identity(settings), stage_keys(settings)

    @calibrant.measure("another", "lower", "number", "mean confidence", name="another")
    def another(confidence: Any) -> Any:
        return confidence.mean()

    named = settings.changed({"plugins": [MODULE]})
    assert "another" in declarations.catalogue()
    assert (identity(settings), stage_keys(settings)) == before
    assert (identity(named), stage_keys(named)) == before


@pytest.mark.usefixtures("ideas")
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("calibration.options.pwoer=1", "regularizer own_gap has no option 'pwoer'; it has power"),
        ("posterior.options.sdt=1", "posterior own_jitter has no option 'sdt'; it has std"),
        ("calibrator.options.shrae=1", "calibrator own_mixing has no option 'shrae'; it has share"),
        ("outliers.options={own_radius: {q: 1}}", "detector own_radius has no option 'q'; it has p, standardize"),
        ("selector.options.pnealty=1", "objective own_brier has no option 'pnealty'; it has penalty"),
        ("data.source=own_bars?cuont=3", "own_bars has no option 'cuont'; it has count, shift"),
        ("data.source=own_bars?path=3", "own_bars has no option 'path'; it has count, shift"),
    ],
)
def test_options_are_checked_before_anything_is_trained(
    call: Caller, tmp_path: Path, wrong: str, sentence: str
) -> None:
    settings = given(*SMALL, *DATA, *SLOTS, "calibration.options={}", "posterior.options={}", wrong)
    assert sentence in call.refused("train", *settings, "-s", "SCBNN", "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "stages").exists()


@pytest.mark.usefixtures("ideas")
def test_a_choice_of_another_thing_drops_the_options_of_the_one_before() -> None:
    settings = load_settings(overrides=[*SLOTS, "selector.options.penalty=8"])
    other = settings.with_("posterior.family=mean_field", "selector.objective=calibration")
    assert (other.posterior.options, other.selector.options) == ({}, {})


@pytest.mark.usefixtures("ideas")
def test_a_predictor_names_the_plugin_of_each_part_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, (_, x, y) = digits(2), posterior()
    said = parts.ensemble.predict([(x[1000:], y[1000:])])
    scorer = OutlierScores(("own_radius",)).fit(said.features)
    selector = Selector("own_brier", training=Training(steps=5)).fit(said.confidence, None, said.correct)
    selector.threshold(0.5)
    calibrator = slots.build("calibrator", "own_mixing").fit(said.logits, said.labels)
    bare = {"outliers": None, "selector": None}
    saved = {
        "detector 'own_radius'": parts.predictor(**{**bare, "outliers": scorer}),
        "detector 'own_margin'": parts.predictor(**bare, ood_score="own_margin"),
        "objective 'own_brier'": parts.predictor(**{**bare, "selector": selector}),
        "calibrator 'own_mixing'": parts.predictor(**bare, calibrator=calibrator),
    }
    for name, predictor in saved.items():
        predictor.save(tmp_path / name)
        assert torch.equal(load(tmp_path / name)(parts.test[:9]).accepted, predictor(parts.test[:9]).accepted)
    forget(monkeypatch)
    for name in saved:
        for read in (load, describe):
            with pytest.raises(ValueError, match=f"^the {name} of the plugin own_ideas is needed.*--plugin own_ideas"):
                read(tmp_path / name)


@pytest.mark.usefixtures("ideas")
def test_the_members_of_a_family_from_outside_need_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    family = slots.build("posterior", "own_jitter", {"std": 0.1}, build("mlp-24", SHAPE, CLASSES))
    predictor = Predictor(family.sample(3, seed=1), backbone=Backbone("mlp-24", SHAPE, CLASSES))
    x = digits(2).test[:20].float() / 255
    expected = predictor.save(tmp_path / "saved") and predictor(x).probabilities
    forget(monkeypatch)
    assert torch.equal(load(tmp_path / "saved")(x).probabilities, expected)


@pytest.mark.usefixtures("ideas")  # which forgets after the test what was registered
@pytest.mark.skipif(not DOCS.exists(), reason="the source distribution has no docs")
def test_the_example_in_the_docs_works() -> None:
    (example,) = re.findall(r"```python\n# my_ideas.py\n(.*?)```", DOCS.read_text(), re.S)
    exec(example, {"__name__": "my_ideas"})
    score = slots.build("detector", "margin").score(logits=torch.tensor([[3.0, 1.0, 0.0], [2.0, 2.0, 0.0]]))
    assert score.tolist() == [-2.0, 0.0]
    errors = declarations.catalogue()["confident_errors"].function
    assert (
        errors(torch.tensor([0.95, 0.95, 0.5, 0.2]).numpy(), torch.tensor([True, False, False, True]).numpy()) == 0.25
    )
