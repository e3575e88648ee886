"""What all outlier scores share: state, export, devices, degenerate and bad input, averaging over members."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch.export import Dim, export

from calibrant import slots
from calibrant.detectors import OutlierScore, OutlierScores
from calibrant.slots import lookup

SCORES = {name: lookup("detector", name) for name in slots.names("detector")}
SCORES = {name: item for name, item in SCORES.items() if issubclass(item, OutlierScore)}
NAMES = sorted(SCORES)


def features(n=150, d=6, seed=0, dtype=torch.float32):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_is_its_config_and_its_tensors(name):
    fitted = SCORES[name](seed=4, block_size=40).fit(features())
    config = json.loads(json.dumps(fitted.config()))
    rebuilt = SCORES[name].from_state(config, load(save(fitted.state_dict())))
    torch.testing.assert_close(rebuilt.score(features(seed=1)), fitted.score(features(seed=1)), atol=0, rtol=0)
    assert rebuilt.config() == fitted.config()


def test_an_ensemble_of_scores_is_its_config_and_its_tensors():
    fitted = OutlierScores(options={"neighbors": {"k": 3}}, block_size=64).fit(
        torch.stack([features(), features(seed=1)])
    )
    config = json.loads(json.dumps(fitted.config()))
    rebuilt = OutlierScores.from_state(config, load(save(fitted.state_dict())))
    queries = torch.stack([features(seed=2), features(seed=3)])
    torch.testing.assert_close(rebuilt.score(queries), fitted.score(queries), atol=0, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_foreign_tensors_are_refused(name):
    state = SCORES[name]().fit(features()).state_dict()
    missing = dict(list(state.items())[:-1])
    with pytest.raises(ValueError, match="tensors do not belong"):
        SCORES[name].from_state({}, missing)
    flat = {key: value.flatten() for key, value in state.items()} | {"standard.mean": torch.ones(2, 2)}
    with pytest.raises(ValueError, match="tensors do not belong"):
        SCORES[name].from_state({}, flat)


@pytest.mark.parametrize("name", NAMES)
def test_export_takes_any_number_of_queries(name):
    score = SCORES[name](block_size=64).fit(features())
    program = export(score, (features(10),), dynamic_shapes={"features": {0: Dim("batch", min=2, max=4096)}})
    queries = features(33, seed=5)
    torch.testing.assert_close(program.module()(queries), score.score(queries), atol=1e-5, rtol=1e-5)


def test_export_of_an_ensemble():
    scores = OutlierScores(block_size=64).fit(torch.stack([features(), features(seed=1)]))
    example = torch.stack([features(10), features(10)])
    program = export(scores, (example,), dynamic_shapes={"features": {1: Dim("batch", min=2, max=4096)}})
    queries = torch.stack([features(21, seed=2), features(21, seed=3)])
    torch.testing.assert_close(program.module()(queries), scores.score(queries), atol=1e-5, rtol=1e-5)


def test_members_are_fitted_apart_and_averaged():
    members = [features(seed=k) * (k + 1) for k in range(3)]
    queries = [features(40, seed=10 + k) * (k + 1) for k in range(3)]
    found = OutlierScores(seed=7).fit(torch.stack(members)).score(torch.stack(queries))
    for column, name in enumerate(("density", "forest", "svm", "neighbors")):
        alone = [SCORES[name](seed=7 + k).fit(m).score(q) for k, (m, q) in enumerate(zip(members, queries))]
        torch.testing.assert_close(found[:, column], torch.stack(alone).mean(0))


def test_one_network_needs_no_member_dimension():
    whole = OutlierScores().fit(features()[None])
    flat = OutlierScores().fit(features().numpy())
    torch.testing.assert_close(whole.score(features(9, seed=1)[None]), flat.score(features(9, seed=1).numpy()))
    assert flat.score(features(9, seed=1)).shape == (9, 4)


def test_reference_points_are_held_once():
    scores = OutlierScores(("density", "neighbors")).fit(features())
    holders = [name for name, value in scores.state_dict().items() if value.shape == (150, 6)]
    assert holders == ["members.0.references.points"]


def test_scores_without_distances_hold_no_reference_points():
    scores = OutlierScores(("forest",)).fit(features())
    assert scores.state_dict()["members.0.references.points"].numel() == 0
    assert scores.score(features(5)).shape == (5, 1)


@pytest.mark.parametrize("name", slots.names("detector"))
def test_what_is_not_fitted_holds_nothing_that_could_be_saved(name):
    """Numbers that nobody has set would differ from one file to the next."""
    for key, value in lookup("detector", name)().state_dict().items():
        assert value.numel() == 0 or value.dim() == 0, key
        assert value.numel() == 0 or value.isnan() or value == 0, key


def test_the_cap_keeps_a_seeded_subset():
    points = features(500)
    first, again, other = (
        SCORES["neighbors"](max_points=50, seed=seed).fit(points).references.points for seed in (1, 1, 2)
    )
    assert first.shape == (50, 6)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_fifth_score_by_registration(monkeypatch):
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))

    @slots.register("detector", "norm")
    class Norm(OutlierScore):
        def fit_points(self, points):
            pass

        def score_points(self, points):
            return points.norm(dim=1)

    found = OutlierScores(("norm", "neighbors")).fit(features()).score(features(4, seed=1))
    torch.testing.assert_close(found[:, 0], Norm().fit(features()).score(features(4, seed=1)))


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_kept_and_half_is_widened(name):
    for given, expected in (
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
    ):
        assert SCORES[name]().fit(features().to(given)).score(features(3)).dtype == expected


@pytest.mark.parametrize("name", NAMES)
def test_fitting_leaves_the_global_random_state_alone(name):
    torch.manual_seed(3)
    np.random.seed(3)
    before, legacy = torch.get_rng_state(), np.random.get_state()
    SCORES[name](max_points=100).fit(features(300))
    assert torch.equal(before, torch.get_rng_state())
    assert (legacy[1] == np.random.get_state()[1]).all()
    assert legacy[2] == np.random.get_state()[2]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 5, 80])
def test_constant_features_score_alike(name, count):
    constant = torch.full((count, 3), 2.5)
    score = SCORES[name]().fit(constant)
    found = score.score(constant)
    assert bool(torch.isfinite(found).all())
    torch.testing.assert_close(found, found[:1].expand_as(found))


@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_is_dead_in_training_does_no_harm(name):
    dead = torch.cat([features(), torch.zeros(150, 1)], 1)
    assert bool(torch.isfinite(SCORES[name]().fit(dead).score(dead + 0.5)).all())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_fewer_points_than_neighbors(name, count):
    found = SCORES[name]().fit(features(count)).score(features(20, seed=1))
    assert found.shape == (20,)
    assert bool(torch.isfinite(found).all())


@pytest.mark.parametrize("name", NAMES)
def test_bad_features_are_refused(name):
    score = SCORES[name]()
    with pytest.raises(ValueError, match="before fit"):
        score.score(features())
    with pytest.raises(ValueError, match="features must have 2 dimensions"):
        score.fit(features()[0])
    with pytest.raises(ValueError, match="features is empty"):
        score.fit(torch.empty(0, 3))
    with pytest.raises(ValueError, match="features holds NaN"):
        score.fit(features().log())
    with pytest.raises(ValueError, match="features must be floating point"):
        score.fit(torch.ones(3, 3, dtype=torch.long))
    score.fit(features())
    with pytest.raises(ValueError, match="features have 5 columns, but the score was fitted to 6"):
        score.score(features(d=5))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("density", {"bandwidth": 0.0}),
        ("neighbors", {"k": 0}),
        ("neighbors", {"distance": "median"}),
        ("lof", {"k": 0}),
        ("forest", {"trees": -1}),
        ("svm", {"nu": 0.0}),
        ("svm", {"target": 1.0}),
        ("svm", {"gamma": -1.0}),
        ("density", {"block_size": 0}),
        ("density", {"max_points": 0}),
    ],
)
def test_bad_settings_are_refused(name, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        SCORES[name](**bad)


def test_bad_ensembles_are_refused():
    with pytest.raises(ValueError, match=r"there is no detector 'knnn'; did you mean knn\? \(there are density"):
        OutlierScores(("density", "knnn"))
    with pytest.raises(ValueError, match="scores must be some of"):
        OutlierScores(())
    with pytest.raises(ValueError, match="more than once"):
        OutlierScores(("density", "density"))
    with pytest.raises(ValueError, match="options are given for"):
        OutlierScores(("density",), options={"svm": {}})
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        OutlierScores(options={"density": {"bandwidth": -1.0}})
    with pytest.raises(ValueError, match="before fit"):
        OutlierScores().score(features())
    fitted = OutlierScores().fit(torch.stack([features(), features()]))
    with pytest.raises(ValueError, match="features hold 1 members, but 2 were fitted"):
        fitted.score(features())


def test_a_head_cannot_score_alone():
    fitted = OutlierScores().fit(features())
    with pytest.raises(ValueError, match="is a head"):
        fitted.members[0].heads["density"].score(features())
