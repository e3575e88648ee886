"""Any registered detectors as columns: members, state, export, `Predictions`, and what is refused."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save
from torch.export import Dim, export
from torch.nn.functional import normalize

from calibrant import Predictions, slots
from calibrant.detectors import Detector, LogitDetector, OutlierScores
from calibrant.detectors import logits as ood_scores

NAMES = slots.names("detector")
SMALL = {"svm": {"components": 16}, "forest": {"trees": 5}}


def member(seed, count, classes=3, size=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, size, generator=generator).relu(), torch.randn(classes, size, generator=generator)


def predictions(count=90, seed=0, members=2, dtype=torch.float32):
    """Of members with linear heads of their own; the heads do not depend on `seed`."""
    features = torch.stack([member(seed + 10 * k, count)[0] + 0.1 * k for k in range(members)])
    logits = torch.stack([3 * features[k] @ member(100 + k, 1)[1].T + k for k in range(members)])
    return Predictions.from_logits(logits.to(dtype), features.to(dtype), torch.arange(count) % 3)


def fitted(names=NAMES, **settings):
    return OutlierScores(names, options={n: v for n, v in SMALL.items() if n in names}, **settings).fit(predictions())


@pytest.mark.parametrize("name", NAMES)
def test_every_detector_is_a_column_fitted_per_member(name):
    train, queries = predictions(), predictions(20, seed=1)
    found = OutlierScores((name,), seed=3, options={n: v for n, v in SMALL.items() if n == name}).fit(train)
    scores = found.score(queries)
    assert scores.shape == (20, 1)
    kind = slots.lookup("detector", name)
    if issubclass(kind, LogitDetector):
        expected = kind().score(logits=queries.logits)
    else:
        known = slots.options_of("detector", name)
        alone = []
        for k in range(2):
            seeded = {"seed": 3 + k} if "seed" in known else {}
            one = slots.build("detector", name, {**SMALL.get(name, {}), **seeded})
            one.fit(train.features[k], train.logits[k], train.labels)
            alone.append(one.score(queries.features[k], queries.logits[k]))
        expected = torch.stack(alone).mean(0)
    torch.testing.assert_close(scores[:, 0], expected, atol=1e-4, rtol=1e-4)


def test_all_detectors_together_are_what_they_are_alone():
    queries = predictions(20, seed=1)
    together = fitted().score(queries)
    for column, name in enumerate(NAMES):
        torch.testing.assert_close(together[:, column], fitted((name,)).score(queries)[:, 0], atol=1e-4, rtol=1e-4)


def test_all_detectors_are_their_config_and_their_tensors():
    scores = fitted(block_size=16)
    rebuilt = OutlierScores.from_state(json.loads(json.dumps(scores.config())), load(save(scores.state_dict())))
    queries = predictions(40, seed=2)
    assert torch.equal(rebuilt.score(queries), scores.score(queries))
    assert rebuilt.config() == scores.config()


@pytest.mark.parametrize("name", NAMES)
def test_a_detector_is_its_config_and_its_tensors(name):
    train, queries = predictions(), predictions(20, seed=1)
    one = slots.build("detector", name, SMALL.get(name, {}))
    one.fit(train.features[0], train.logits[0], train.labels)
    rebuilt = type(one).from_state(json.loads(json.dumps(one.config())), load(save(one.state_dict())))
    inputs = queries.features[0], queries.logits[0]
    assert torch.equal(rebuilt.score(*inputs), one.score(*inputs))


def test_all_detectors_can_be_exported_for_any_number_of_queries():
    scores, example, queries = fitted(), predictions(10, seed=3), predictions(23, seed=4)
    shapes = {name: {1: Dim("batch", min=2, max=4096)} for name in ("features", "logits")}
    program = export(scores, (example.features, example.logits), dynamic_shapes=shapes)
    found = program.module()(queries.features, queries.logits)
    torch.testing.assert_close(found, scores.score(queries), atol=1e-4, rtol=1e-4)


def test_predictions_are_fitted_to_scored_and_extended():
    train, queries = predictions(), predictions(7, seed=1)
    scores = OutlierScores(("neighbors", "energy")).fit(train)
    by_hand = (
        OutlierScores(("neighbors", "energy")).fit(train.features, train.logits).score(queries.features, queries.logits)
    )
    assert torch.equal(scores.score(queries), by_hand)
    extended = queries.with_scores(scores)
    assert list(extended.scores) == ["neighbors", "energy"]
    assert torch.equal(extended.columns(), by_hand)


def test_only_what_is_read_is_needed():
    train = predictions()
    logits_only = OutlierScores(("energy", "entropy", "mutual_information")).fit(logits=train.logits)
    assert logits_only.reads == ("logits",)
    assert logits_only.score(logits=train.logits).shape == (90, 3)
    assert OutlierScores(("knn",)).fit(train.features).score(train.features).shape == (90, 1)
    with pytest.raises(ValueError, match=r"logits must be given: energy, vim cannot score without them"):
        OutlierScores(("density", "energy", "vim")).fit(train.features)
    with pytest.raises(ValueError, match=r"labels must be given: mahalanobis cannot be fitted without them"):
        OutlierScores(("density", "mahalanobis")).fit(train.features)
    with pytest.raises(ValueError, match="labels have 4 entries for 90 training examples"):
        OutlierScores(("mahalanobis",)).fit(train.features, labels=torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="logits have 2 columns, but the scores were fitted to 3"):
        logits_only.score(logits=train.logits[..., :2])
    with pytest.raises(ValueError, match="features and logits must be of the same members and inputs"):
        OutlierScores(("vim",)).fit(train.features, train.logits[:, :50])


def test_the_subset_of_reference_points_is_the_same_for_features_logits_and_labels():
    train = predictions(200)
    scores = OutlierScores(("vim", "mahalanobis", "fdbd"), max_points=60).fit(train)  # refuses logits of other inputs
    assert bool(scores.score(train).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dtype_is_kept(dtype):
    train = predictions(dtype=dtype)
    names = [name for name in NAMES if name != "svm"]
    assert OutlierScores(names, options={"forest": {"trees": 3}}).fit(train).score(predictions(5)).dtype == dtype


@pytest.mark.parametrize("name", ["mahalanobis", "relative_mahalanobis", "vim", "fdbd"])
def test_a_detector_alone_says_what_it_lacks(name):
    train, one = predictions(), slots.build("detector", name)
    features, logits = train.features[0], train.logits[0]
    with pytest.raises(ValueError, match="before fit"):
        one.score(features, logits)
    with pytest.raises(ValueError, match=r"features must be given: .* reads them"):
        one.fit(logits=logits, labels=train.labels)
    lacks = "labels" if one.needs_labels else "logits"
    with pytest.raises(ValueError, match=f"{lacks} must be given: .* reads them"):
        one.fit(features)
    with pytest.raises(ValueError, match=r"4 entries, but .* has 90|has 90 entries, but .* has 4"):
        one.fit(features, logits[:4], train.labels[:4])
    one.fit(features, logits, train.labels)
    with pytest.raises(ValueError, match="features have 4 columns, but the score was fitted to 5"):
        one.score(features[:, :4], logits)
    with pytest.raises(ValueError, match="features holds NaN"):
        one.score(features * torch.nan, logits)


def test_options_are_checked_by_name():
    assert slots.options_of("detector", "knn") == {
        "normalize": True,
        "k": 50,
        "standardize": True,
        "max_points": 20_000,
        "block_size": 1024,
        "seed": 0,
    }
    with pytest.raises(ValueError, match=r"detector gen has no option 'gama'; it has gamma, top"):
        OutlierScores(("gen",), options={"gen": {"gama": 0.2}})


def test_raw_detectors_can_be_normalized_and_then_share_nothing():
    train, queries = predictions(), predictions(9, seed=1)
    options = {"density": {"normalize": True}}
    found = OutlierScores(("density", "neighbors"), options=options).fit(train).score(queries)
    unit = OutlierScores(("density",), standardize=False).fit(normalize(train.features, dim=-1))
    torch.testing.assert_close(found[:, 0], unit.score(normalize(queries.features, dim=-1))[:, 0])
    torch.testing.assert_close(found[:, 1], OutlierScores(("neighbors",)).fit(train).score(queries)[:, 0])


def test_the_documentation_lists_every_detector():
    page = (Path(__file__).parents[2] / "docs" / "outlier-scores.md").read_text(encoding="utf-8")
    for name in NAMES:
        kind = slots.lookup("detector", name)
        fit = "with labels" if kind.needs_labels else "yes" if kind.needs_fit else "no"
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        cells = [cell.strip() for cell in row.split("|")]
        assert cells[2].removesuffix(", normalized") == " and ".join(kind.reads)
        assert cells[2].endswith(", normalized") == slots.options_of("detector", name).get("normalize", False)
        assert cells[3] == fit


def test_one_member_of_mutual_information_is_zero():
    one = predictions(members=1)
    assert OutlierScores(("mutual_information",)).fit(one).score(one).abs().max() < 1e-6


@pytest.mark.parametrize("name", ood_scores.logit_names())
def test_inputs_with_logits_that_are_not_finite_have_no_score(name):
    logits = predictions(6).logits.clone()
    expected = ood_scores.score_rows(name, logits)
    logits[1, 2, 0] = torch.nan
    found = ood_scores.score_rows(name, logits)
    assert found.isnan().tolist() == [False, False, True, False, False, False]
    others = torch.arange(6) != 2
    assert torch.equal(found[others], expected[others])


def test_detectors_of_logits_are_known_by_name():
    names = ood_scores.logit_names()
    assert names[:5] == list(ood_scores.SCORES)
    assert set(names) == {*ood_scores.SCORES, "gen", "max_logit_pnorm"}
    with pytest.raises(ValueError, match="detector vim must be fitted first: name one of msp, "):
        ood_scores.logit_detector("vim")


def test_a_detector_from_outside_may_read_everything(monkeypatch):
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))

    @slots.register("detector", "from_outside")
    class FromOutside(Detector):
        needs_labels = True

        def __init__(self, *, scale: float = 1.0) -> None:
            super().__init__()
            self.scale = scale
            self.register_buffer("level", torch.tensor(0.0))

        def fit_member(self, features, logits, labels):
            self.level = (features.mean() + logits.mean() + labels.float().mean()).to(features)

        def score_member(self, features, logits):
            return self.scale * (features.sum(1) - logits.sum(1) - self.level)

    train = predictions()
    found = OutlierScores(("from_outside", "density"), options={"from_outside": {"scale": 2.0}}).fit(train).score(train)
    levels = [train.features[k].mean() + train.logits[k].mean() + 1 for k in range(2)]
    each = [train.features[k].sum(1) - train.logits[k].sum(1) - levels[k] for k in range(2)]
    torch.testing.assert_close(found[:, 0], 2 * torch.stack(each).mean(0))


def test_what_is_no_detector_is_refused(monkeypatch):
    monkeypatch.setattr(slots, "_registered", dict(slots._registered))
    slots.register("detector", "no_detector")(torch.nn.Flatten)
    with pytest.raises(ValueError, match=r"no_detector is a Flatten; derive it from calibrant.detectors.Detector"):
        OutlierScores(("no_detector",))


def test_what_was_fitted_to_all_members_is_stacked_and_scores_as_before():
    """Trees differ in their nodes from member to member, so all but the largest are filled up."""
    names = ("density", "neighbors", "lof", "forest", "mahalanobis", "vim", "gen")
    scores, queries = fitted(names), predictions(20, seed=1)
    found = scores.stacked()
    assert found is not None
    nodes = [len(member.heads["forest"].depth) for member in scores.members]
    assert nodes[0] != nodes[1]
    assert found["heads.forest.depth"].shape == (2, max(nodes))
    assert set(found) == {name for name, _ in scores.members[0].named_buffers()}
    for k, member in enumerate(scores.members):
        inputs = queries.features[k], queries.logits[k]
        expected = member(*inputs)
        member._restore({name: value[k] for name, value in found.items()})
        torch.testing.assert_close(member(*inputs), expected)


def test_members_whose_buffers_cannot_be_filled_up_are_not_stacked():
    scores = fitted(("density", "mahalanobis"))
    centers = scores.members[1].heads["mahalanobis"].classes.means
    centers.points = centers.points[:2]
    assert scores.stacked() is None
