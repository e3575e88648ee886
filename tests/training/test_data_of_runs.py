"""What a run is tested on: OOD sets of one name, and test sets that change with the seed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from calibrant import InputError
from calibrant.config.loading import load_settings
from calibrant.deploy.demo import run_demo
from calibrant.training import open_data


def test_two_ood_sets_of_one_short_name_are_both_kept(tmp_path):
    for folder, size in (("a", 10), ("b", 12)):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "x.npz", inputs=np.zeros((size, 1, 8, 8), np.uint8))
    a, b = (f"npz:{tmp_path / folder / 'x.npz'}" for folder in "ab")
    settings = load_settings("embedded").with_(
        f"data.uncertainty='{a}'", f"data.ood=['{b}']", "data.uncertainty_size=6"
    )
    found = open_data(settings.data, 0).ood
    assert {name: len(data) for name, data in found.items()} == {"x": 4, "x (2)": 12}


@pytest.mark.parametrize(
    ("uncertainty", "ood"),
    [
        ("npz:x.npz", ["npz:x.npz"]),
        ("npz:x.npz", ["embedded:far", "./x.npz"]),
        ("noise?size=8", ["noise?size=16"]),
        ("letters?size=8&color=gray", ["letters?size=8&color=rgb"]),
    ],
)
def test_the_source_of_d_u_is_refused_as_an_ood_test_set(tmp_path, monkeypatch, uncertainty, ood):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", inputs=np.zeros((10, 1, 8, 8), np.uint8))
    settings = load_settings("embedded").with_(f"data.uncertainty='{uncertainty}'", f"data.ood={ood}")
    with pytest.raises(InputError, match=re.escape(f"data.ood names {ood[-1]}, and data.uncertainty {uncertainty}:")):
        open_data(settings.data, 0)


@pytest.mark.parametrize(
    ("uncertainty", "ood"),
    [
        ("embedded:near", ["embedded:near", "embedded:far"]),  # has parts: D_u is the other one
        ("npz:a/x.npz?inputs=inputs", ["npz:a/x.npz?inputs=other"]),
        ("npz:a/x.npz", ["npz:b/x.npz"]),
    ],
)
def test_other_examples_of_the_same_kind_are_not_refused(tmp_path, monkeypatch, uncertainty, ood):
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        images = np.zeros((10, 1, 8, 8), np.uint8)
        np.savez(tmp_path / folder / "x.npz", inputs=images, other=images)
    named = (f"data.uncertainty='{uncertainty}'", f"data.ood={ood}")
    settings = load_settings("embedded").with_(*named, "data.uncertainty_size=6")
    assert len(open_data(settings.data, 0).ood) == 1 + len(ood)


def test_the_demo_refuses_a_test_set_that_changes_with_the_seed_before_it_trains(tmp_path):
    settings = load_settings("embedded").with_("data.test=60")
    with pytest.raises(ValueError, match=r"seeds cannot be averaged with data.test=60"):
        run_demo(settings, tmp_path / "demo", seeds=(0, 1))
    assert not (tmp_path / "demo").exists()


def test_a_path_that_exists_only_below_the_root_is_found_there(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    (tmp_path / "data" / "set").mkdir(parents=True)
    arrays = {f"x_{part}": rng.random((40, 3)).astype(np.float32) for part in ("train", "test")}
    np.savez(tmp_path / "data" / "set" / "x.npz", **arrays, y_train=np.arange(40) % 2, y_test=np.arange(40) % 2)
    chosen = ("data.source=npz:set/x.npz", f"data.root={tmp_path / 'data'}", "data.validation=10")
    settings = load_settings("embedded", overrides=chosen)
    data = open_data(settings.data, 0)
    assert len(data.train) == 30
    np.testing.assert_allclose(data.test.inputs.numpy(), arrays["x_test"])
    monkeypatch.chdir(tmp_path)  # where there is another one, which is nearer
    (tmp_path / "set").mkdir()
    np.savez(tmp_path / "set" / "x.npz", x_train=np.ones((20, 3)), x_test=np.ones((5, 3)), y_train=np.arange(20) % 2)
    assert len(open_data(settings.data, 0).test) == 5
    with pytest.raises(ValueError, match=r"nowhere/x\.npz"):
        open_data(settings.with_("data.source=npz:nowhere/x.npz").data, 0)
