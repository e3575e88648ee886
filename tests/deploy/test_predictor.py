from __future__ import annotations

import copy
import json
import math
import threading

import pytest
import torch
from predictors import digits
from torch import Tensor, nn

from calibrant import Ensemble
from calibrant.deploy import Decision, Predictor
from calibrant.detectors import OutlierScores
from calibrant.detectors import logits as ood_scores
from calibrant.selective import ConfidenceSelector, Selector, Training

SETTINGS = {"forest": {"trees": 5}, "svm": {"components": 32}}


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def test_every_part_agrees_with_the_parts_used_by_themselves() -> None:
    parts = digits(3)
    predictions = parts.ensemble.predict([parts.test])
    scores = parts.outliers.score(predictions.features)
    decision = parts.predictor(0.7)(parts.test)
    assert torch.equal(decision.predicted, predictions.predicted)
    torch.testing.assert_close(decision.probabilities, predictions.probabilities)
    torch.testing.assert_close(decision.confidence, predictions.confidence)
    torch.testing.assert_close(decision.predictions.columns(), scores)
    assert torch.equal(decision.accepted, parts.selector.accept(decision.confidence, decision.predictions.columns()))
    assert torch.equal(decision.acceptance, parts.selector.relaxed(decision.confidence, decision.predictions.columns()))
    assert torch.equal(decision.ood_score, 1 - decision.confidence)
    assert decision.members.tolist() == [3] * 500
    assert tuple(decision.scores) == ("density", "forest", "svm", "neighbors")
    assert 0.5 < decision.coverage < 0.9


@pytest.mark.parametrize("name", [*ood_scores.SCORES, "density", "forest", "svm", "neighbors"])
def test_another_ood_score_by_name(name: str) -> None:
    parts = digits(3)
    decision = parts.predictor(ood_score=name)(parts.test[:20])
    if name in ood_scores.SCORES:
        expected = ood_scores.SCORES[name](parts.ensemble(parts.test[:20]))
    else:
        expected = decision.predictions.columns()[:, tuple(decision.scores).index(name)]
    torch.testing.assert_close(decision.ood_score, expected)


def test_a_batch_of_one_and_batches_by_a_loader_agree_with_one_batch() -> None:
    parts = digits(3)
    predictor = parts.predictor()
    together = predictor(parts.test[:30])
    loader = [(batch, None) for batch in parts.test[:30].split(7)]
    for other in (predictor.predict(loader), Decision.concatenate([predictor(x[None]) for x in parts.test[:30]])):
        assert torch.equal(other.predicted, together.predicted)
        assert torch.equal(other.accepted, together.accepted)
        torch.testing.assert_close(other.predictions.columns(), together.predictions.columns())
    with pytest.raises(ValueError, match="loader is empty"):
        predictor.predict([])


def test_the_threshold_of_the_selector_holds_at_once_and_an_own_one_overrides_it() -> None:
    parts = digits(3)
    predictor = parts.predictor(1.0)
    assert predictor(parts.test).coverage == 1
    parts.selector.threshold(0.0)
    assert predictor(parts.test).coverage == 0
    half = predictor(parts.test).acceptance.median()
    own = parts.predictor(0.0, threshold=parts.selector.threshold(0.5))
    parts.selector.threshold(0.0)
    assert own.threshold == pytest.approx(float(parts.selector.gates[-149]))
    assert parts.predictor(threshold=float(half))(parts.test).coverage == pytest.approx(0.5, abs=0.01)


def test_without_a_selector_confidence_decides_and_without_a_threshold_everything_is_accepted() -> None:
    ensemble, x = Ensemble.of(network()), torch.randn(50, 4)
    everything = Predictor(ensemble)(x)
    assert everything.accepted.all()
    assert everything.predictions.columns().shape == (50, 0)
    some = Predictor(ensemble, threshold=0.5)(x)
    assert torch.equal(some.accepted, everything.confidence >= 0.5)
    assert 0 < some.coverage < 1
    confidence = ConfidenceSelector().fit(everything.confidence)
    confidence.threshold(0.4)
    assert Predictor(ensemble, selector=confidence)(x).coverage == pytest.approx(0.4)


def test_scores_fitted_to_averaged_features_score_averaged_features() -> None:
    ensemble, x = Ensemble.stack([network(0), network(1)]), torch.randn(60, 4)
    features = ensemble.predict([x]).features
    assert features is not None
    outliers = OutlierScores(["density", "neighbors"]).fit(features.mean(0))
    decision = Predictor(ensemble, outliers=outliers)(x)
    torch.testing.assert_close(decision.predictions.columns(), outliers.score(features.mean(0)))


def test_float64_goes_in_and_comes_out_and_arrays_and_other_dtypes_are_taken() -> None:
    x = torch.randn(5, 4, dtype=torch.float64)
    double = Predictor(Ensemble.of(network().double()))(x)
    assert double.probabilities.dtype == torch.float64
    single = Predictor(Ensemble.of(network()))(x.numpy())
    assert single.probabilities.dtype == torch.float32
    torch.testing.assert_close(single.probabilities.double(), double.probabilities, atol=1e-6, rtol=0)
    half = Predictor(Ensemble.of(network().bfloat16()))(x)
    assert half.probabilities.dtype == torch.float32


def test_constant_features_and_tokens() -> None:
    dead = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.ReLU(), nn.Linear(12, 2))
    nn.init.constant_(dead[0].weight, -1.0)
    tokens = torch.randint(5, (40, 3))
    ensemble = Ensemble.of(dead)
    predictions = ensemble.predict([tokens])
    outliers = OutlierScores(options=SETTINGS).fit(predictions.features)
    scores = outliers.score(predictions.features)
    selector = Selector(training=Training()).fit(predictions.confidence, scores, torch.ones(40))
    selector.threshold(0.5)
    decision = Predictor(ensemble, outliers=outliers, selector=selector)(tokens)
    assert decision.predictions.columns().isfinite().all()
    assert decision.coverage == 1  # all tie


def test_a_broken_input_is_not_accepted_and_leaves_the_others_alone() -> None:
    ensemble, x = Ensemble.stack([network(0), network(1)]), torch.randn(6, 4)
    broken = x.clone()
    broken[2, 0] = math.nan
    for name in ("confidence", "energy", "density"):
        outliers = OutlierScores(["density"]).fit(ensemble.predict([torch.randn(50, 4)]).features)
        predictor = Predictor(ensemble, outliers=outliers, ood_score=name)
        good, bad = predictor(x), predictor(broken)
        assert bad.accepted.tolist() == [True, True, False, True, True, True]
        assert bad.ood_score[2].isnan()
        others = torch.tensor([0, 1, 3, 4, 5])
        torch.testing.assert_close(bad[others].ood_score, good[others].ood_score)


def test_a_decision_is_indexed_iterated_and_tabulated() -> None:
    parts = digits(3)
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    decision = parts.predictor(classes=names)(parts.test[:4])
    assert len(decision) == 4
    assert [len(one) for one in decision] == [1] * 4
    assert decision[-1].predicted.tolist() == decision.predicted.tolist()[-1:]
    assert torch.equal(decision[1:3].confidence, decision.confidence[1:3])
    assert torch.equal(decision[decision.accepted].probabilities, decision.probabilities[decision.accepted])
    with pytest.raises(IndexError, match="index 4"):
        decision[4]
    table = json.loads(json.dumps(decision.table(probabilities=True)))
    assert table["predicted"] == [names[label] for label in decision.predicted.tolist()]
    assert {len(column) for column in table.values()} == {4}
    assert table["p_three"] == pytest.approx(decision.probabilities[:, 3].tolist())
    assert table["outlier_svm"] == pytest.approx(decision.predictions.columns()[:, 2].tolist())
    assert "p_three" not in decision.table()
    assert parts.predictor()(parts.test[:4]).table()["predicted"] == decision.predicted.tolist()


@pytest.mark.parametrize("same", [True, False])
def test_threads_share_a_predictor_or_the_ensemble_of_several(same: bool) -> None:
    parts = digits(3)
    predictor, batches = parts.predictor(), parts.test[:120].split(20)
    others = [predictor if same else predictor.at_coverage(1 - number / 10) for number in range(len(batches))]
    assert all(other.ensemble.lock is predictor.ensemble.lock for other in others)
    alone = [predictor(batch).predictions.columns() for batch in batches]
    found: dict[int, list[Tensor]] = {}

    def serve(number: int) -> None:
        found[number] = [others[number](batches[number]).predictions.columns() for _ in range(5)]

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(scores, alone[n]) for n, results in found.items() for scores in results)
    assert len(found) == len(batches)


def test_a_copy_is_independent() -> None:
    parts = digits(3)
    predictor = parts.predictor()
    twin = copy.deepcopy(predictor)
    before = predictor(parts.test[:5])
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(predictor(parts.test[:5]).probabilities, before.probabilities)
    assert not torch.equal(twin(parts.test[:5]).probabilities, before.probabilities)


def test_what_does_not_fit_is_refused_in_one_sentence() -> None:
    parts, ensemble = digits(3), Ensemble.of(network())
    with pytest.raises(ValueError, match="outliers were fitted to 3 members, but the ensemble has 2"):
        Predictor(Ensemble.stack([network(), network()]), outliers=parts.outliers)
    with pytest.raises(ValueError, match="scores have 0 columns"):
        Predictor(ensemble, selector=parts.selector)
    with pytest.raises(ValueError, match="selector is not fitted"):
        Predictor(ensemble, selector=Selector())
    with pytest.raises(ValueError, match="threshold is not set"):
        Predictor(ensemble, selector=ConfidenceSelector().fit(torch.rand(10)))
    with pytest.raises(ValueError, match="threshold is not set"):
        Predictor(ensemble, threshold=math.nan)
    with pytest.raises(ValueError, match=r"ood_score must be one of confidence, .*, not 'density'"):
        Predictor(ensemble, ood_score="density")
    with pytest.raises(ValueError, match="feature_layer 'head'"):
        Predictor(ensemble, feature_layer="head")
    with pytest.raises(ValueError, match="classes has 2 names, but the module 3 outputs"):
        Predictor(ensemble, classes=["a", "b"])(torch.zeros(1, 4))
    with pytest.raises(ValueError, match="parts is empty"):
        Decision.concatenate([])


@pytest.mark.parametrize(("x", "message"), [
    (torch.zeros(0, 4), "x is empty"),
    (torch.zeros(4), r"x must be a batch \(B, ...\)"),
    ([["a"]], "x must hold numbers"),
])  # fmt: skip
def test_bad_batches_are_refused(x: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Predictor(Ensemble.of(network()))(x)


def test_modules_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(ValueError, match="must return logits"):
        Predictor(Ensemble.of(nn.Sequential(nn.Unflatten(1, (2, 2)))))(torch.zeros(2, 4))
    plain = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten())
    outliers = OutlierScores(["density"]).fit(torch.randn(20, 3))
    with pytest.raises(ValueError, match="feature_layer must be named"):
        Predictor(Ensemble.of(plain), outliers=outliers)(torch.zeros(2, 1, 2, 2))
    named = Predictor(Ensemble.of(plain), outliers=outliers, feature_layer="1")
    assert named(torch.zeros(2, 1, 2, 2)).predictions.columns().shape == (2, 1)


def test_a_predictor_at_another_coverage_shares_networks_and_takes_turns() -> None:
    parts = digits(3)
    predictor = parts.predictor()
    before, wide = predictor.threshold, predictor.at_coverage(1.0)
    assert wide(parts.test[:50]).accepted.all()
    assert predictor.threshold == before
    assert wide.ensemble is predictor.ensemble
    assert Predictor(predictor.ensemble).ensemble.lock is predictor.ensemble.lock
    scored = predictor(parts.test[:50])
    assert torch.equal(wide(parts.test[:50]).predictions.columns(), scored.predictions.columns())
