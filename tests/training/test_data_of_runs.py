"""What a run is tested on: OOD sets of one name, and test sets that change with the seed."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_the_demo_refuses_a_test_set_that_changes_with_the_seed_before_it_trains(tmp_path):
    settings = load_settings("embedded").with_("data.test=60")
    with pytest.raises(ValueError, match=r"seeds cannot be averaged with data.test=60"):
        run_demo(settings, tmp_path / "demo", seeds=(0, 1))
    assert not (tmp_path / "demo").exists()
