from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from commands import Caller, call, run

import calibrant
from calibrant.config.loading import Settings, load_settings, setting_names

__all__ = ["call"]


def test_info_tells_versions_devices_and_threads() -> None:
    found = json.loads(run("info", "--json").stdout)
    assert found["versions"]["calibrant"] == calibrant.__version__
    assert "cpu" in found["devices"]
    assert found["threads"] >= 1


def test_info_lists_every_setting_with_its_value(call: Caller) -> None:
    rows = {row["name"]: row for row in json.loads(call("info", "settings", "--json", "--profile", "paper").out)}
    leaves = {name for name in setting_names() if not name.endswith((".frequentist", ".bayesian"))}
    assert set(rows) == leaves
    assert rows["fit.epochs"]["value"] == load_settings("paper").fit.epochs
    assert rows["data.source"]["description"] == "ID data: a name, or name:PATH"
    assert rows["fit"]["description"]
    group = call("info", "settings", "selector").out
    assert "selector.eta" in group
    assert "fit.rate" not in group


def test_info_prints_a_profile_that_can_be_used_as_it_is(call: Caller, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(call("info", "profiles", "micro").out)
    assert load_settings(file=tmp_path / "mine.yaml") == load_settings("micro") != Settings()
    assert set(json.loads(call("info", "profiles", "--json").out)) >= {"paper", "small", "embedded"}
    assert json.loads(call("info", "profiles", "micro", "--json").out)["backbone"]["name"] == "cnn-32-4"


def test_info_lists_the_schemes_and_their_chains(call: Caller) -> None:
    found = json.loads(call("info", "schemes", "--json").out)
    assert len(found) == 16
    assert found["SCBNN-OCM"] == ["CBNN", "CBNN-OCM", "SCBNN-OCM"]
    assert call("info", "schemes", "sfnn").out == "SFNN        FNN -> SFNN\n"


def test_info_prints_numbers_and_defaults_that_are_functions_as_a_person_would(call: Caller) -> None:
    shown = json.loads(call("info", "slots", "posterior", "--json").out)
    options = next(row["options"] for row in shown if row["name"] == "mean_field")
    assert options["bayesian"] == "not_normalization"
    text = call("info", "slots", "posterior").out
    assert " at 0x" not in text
    assert "0.0316228" in text


def test_what_info_does_not_know_is_named_plainly(call: Caller) -> None:
    assert call.refused("info", "settings", "fits").startswith(
        "calibrant: setting fits does not exist; did you mean fit?"
    )
    told = call.refused("info", "setting")
    assert "'setting' is not one of 'machine', 'settings'" in told
    assert "Value error" not in told


def test_the_overview_cuts_no_description_short(call: Caller) -> None:
    assert "..." not in call("--help").out.partition("Commands:")[2]


def test_data_says_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "LSUN_resize").mkdir()
    (tmp_path / "LSUN_resize" / "0.jpg").touch()
    found = json.loads(run("data", "--root", tmp_path, "--json").stdout)
    there = {one["spec"]: one["found"] for one in found["sources"]}
    assert there["lsun-resize:PATH"] == str(tmp_path)
    assert there["cifar100:PATH"] is None
    assert "cifar-100-python.tar.gz" in json.dumps(found["sources"])


def test_data_looks_into_a_source(call: Caller, tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", x=np.zeros((7, 3), np.float32), y=np.array(["b", "a", "a", "b", "a", "b", "b"]))
    found = json.loads(call("data", tmp_path / "own.npz", "--json").out)
    assert found["all"] == {"inputs": [7, 3], "type": "float32", "labeled": True}
    assert found["classes"] == ["a", "b"]
    assert "500 inputs of 1 x 8 x 8, uint8, with labels" in call("data", "embedded").out


def test_data_refuses_to_fetch_what_is_not_published(call: Caller, tmp_path: Path) -> None:
    assert "no archive of 'embedded'" in call.refused("data", "--root", tmp_path, "--fetch", "embedded")
