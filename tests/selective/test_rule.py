"""The rule against its parts computed by hand: means over members, scores, calibration, selector and threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from calibrant.calibrators import TemperatureScaling
from calibrant.calibrators.base import Calibrator
from calibrant.detectors import OutlierScores
from calibrant.selective import SIRC, ConfidenceSelector, Selector, Threshold, Training
from calibrant.selective.base import BaseSelector
from calibrant.selective.rule import DecisionRule


@dataclass
class Data:
    """Features (K, N, D), logits (K, N, C) and labels (N,) of training data, and of fresh inputs."""

    features: Tensor
    logits: Tensor
    labels: Tensor
    fresh_features: Tensor
    fresh_logits: Tensor


def drawn(members: int = 2) -> Data:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(members, *shape, generator=generator)

    logits = 2 * normal(40, 3)
    labels = torch.where(torch.arange(40) < 30, logits.softmax(-1).mean(0).argmax(1), 0)
    return Data(normal(40, 5), logits, labels, 2 * normal(7, 5), 3 * normal(7, 3))


def rule_of(
    outliers: OutlierScores | None = None,
    selector: BaseSelector | None = None,
    threshold: float | Threshold | None = None,
    *,
    total: int = 2,
    ood_score: str = "confidence",
    classes: list[str] | None = None,
    calibrator: Calibrator | None = None,
) -> DecisionRule:
    return DecisionRule(total, outliers, selector, threshold, ood_score, classes, calibrator)


def outputs(rule: DecisionRule, data: Data) -> tuple[Tensor, Tensor]:
    """What all members say of the fresh inputs."""
    pairs = zip(data.fresh_logits, data.fresh_features)
    found = [rule.member_outputs(k, logits, features) for k, (logits, features) in enumerate(pairs)]
    logits, extra = zip(*found)
    return torch.stack(logits), torch.stack(extra)


def energy(logits: Tensor) -> Tensor:
    """-log sum_c exp(z_c), by hand."""
    return -logits.exp().sum(-1).log()


@pytest.mark.parametrize("block_size", [1024, 3])
def test_every_step_from_the_members_to_the_decision(block_size: int) -> None:
    data = drawn()
    outliers = OutlierScores(["neighbors", "energy"], block_size=block_size).fit(data.features, data.logits)
    calibrator = TemperatureScaling().fit(data.logits, data.labels)
    confidence = calibrator.probabilities(data.logits).amax(1)
    before = calibrator.fingerprint()
    sirc = SIRC("energy").fit_arrays(confidence, energy(data.logits).mean(0), calibrator=before)
    rule = rule_of(outliers, sirc, 0.6, ood_score="energy", classes=["a", "b", "c"], calibrator=calibrator)
    decision = rule.decide(*outputs(rule, data), rule.threshold)

    mean = data.fresh_logits.softmax(-1).mean(0)
    scaled = mean ** (1 / calibrator.temperature_)
    probabilities = scaled / scaled.sum(1, keepdim=True)
    far = energy(data.fresh_logits).mean(0)
    acceptance = sirc.relaxed(probabilities.amax(1), far[:, None])
    said = decision.predictions
    torch.testing.assert_close(said.probabilities, probabilities)
    torch.testing.assert_close(said.confidence, probabilities.amax(1))
    assert torch.equal(said.predicted, mean.argmax(1))
    torch.testing.assert_close(said.scores["energy"], far)
    alone = OutlierScores(["neighbors"]).fit(data.features).score(data.fresh_features)[:, 0]
    torch.testing.assert_close(said.scores["neighbors"], alone)
    torch.testing.assert_close(said.ood_score, far)
    torch.testing.assert_close(said.selection, acceptance)
    assert said.trust is None
    assert said.calibrator == before
    assert torch.equal(decision.accepted, acceptance >= 0.6)
    assert int(rule.decide(*outputs(rule, data), float(said.selection.median())).accepted.sum()) == 4
    assert decision.members.tolist() == [2] * 7
    assert (decision.threshold, decision.classes) == (0.6, ("a", "b", "c"))
    extra = outputs(rule, data)[1].mean(0)
    torch.testing.assert_close(rule.acceptance(mean, extra), acceptance)
    torch.testing.assert_close(rule.calibrated(mean), probabilities)


@pytest.mark.parametrize("scores", [["neighbors", "energy"], ["neighbors"], ["energy"]])
def test_scores_fitted_to_one_member_read_what_is_averaged_over_members(scores: list[str]) -> None:
    data = drawn()
    outliers = OutlierScores(scores).fit(data.features[:1], data.logits[:1])
    rule = rule_of(outliers)
    said = rule.decide(*outputs(rule, data), rule.threshold).predictions
    expected = outliers.score(data.fresh_features.mean(0), data.fresh_logits.mean(0))
    torch.testing.assert_close(torch.stack([said.scores[name] for name in scores], 1), expected)


def test_without_detectors_and_selector_the_confidence_decides() -> None:
    data = drawn()
    mean = data.fresh_logits.softmax(-1).mean(0)
    rule = rule_of()
    assert rule.threshold == -math.inf
    logits, extra = outputs(rule, data)
    assert extra.shape == (2, 7, 0)
    decision = rule.decide(logits, extra, rule.threshold)
    assert bool(decision.accepted.all())
    torch.testing.assert_close(decision.predictions.probabilities, mean)
    torch.testing.assert_close(decision.predictions.ood_score, 1 - mean.amax(1))
    assert decision.predictions.selection is None
    assert decision.predictions.calibrator == "none"
    assert torch.equal(rule.calibrated(mean), mean)
    torch.testing.assert_close(rule.acceptance(mean, extra.mean(0)), mean.amax(1))
    middle = float(mean.amax(1).median())
    assert int(rule.decide(logits, extra, middle).accepted.sum()) == 4  # the median itself is accepted
    by_energy = rule_of(ood_score="energy").decide(logits, extra, 0).predictions.ood_score
    torch.testing.assert_close(by_energy, energy(data.fresh_logits).mean(0))


def test_logits_in_half_precision_are_read_in_single() -> None:
    data = drawn()
    logits, extra = rule_of().member_outputs(0, data.fresh_logits[0].half(), None)
    assert logits.dtype == extra.dtype == torch.float32
    assert rule_of().member_outputs(0, data.fresh_logits[0].double(), None)[0].dtype == torch.float64


def test_only_an_output_that_is_a_probability_is_called_trust() -> None:
    class Certain(ConfidenceSelector):
        probability = True

    data = drawn()
    for kind in (Certain, ConfidenceSelector):
        rule = rule_of(selector=kind().fit(torch.rand(9)), threshold=0.5)
        said = rule.decide(*outputs(rule, data), 0.5).predictions
        torch.testing.assert_close(said.selection, said.confidence)
        assert (said.trust is said.selection) == (kind is Certain)
        assert kind is Certain or said.trust is None


def test_a_selector_reads_its_own_columns_in_its_own_order() -> None:
    data = drawn()
    outliers = OutlierScores(["neighbors", "energy", "entropy"]).fit(data.features, data.logits)
    selector = ConfidenceSelector().fit(torch.rand(9))
    assert rule_of(outliers).read == [0, 1, 2]
    assert rule_of(outliers, selector, 0.5).read == [0, 1, 2]
    selector.names = ("entropy", "neighbors")
    assert rule_of(outliers, selector, 0.5).read == [2, 0]
    selector.names = ("entropy", "density")
    with pytest.raises(ValueError, match="reads the score density, but outliers has neighbors, energy, entropy"):
        rule_of(outliers, selector, 0.5)
    with pytest.raises(ValueError, match="reads the score entropy, but outliers has none"):
        rule_of(None, selector, 0.5)


def test_a_selector_that_reads_the_entropy_gets_that_of_the_mean_probabilities() -> None:
    data = drawn()
    outliers = OutlierScores(["energy"]).fit(None, data.logits)
    selector = Selector(hidden=2, training=Training(steps=1), entropy=True)
    selector.fit(torch.rand(9), torch.rand(9, 2), torch.arange(9) % 2)
    rule = rule_of(outliers, selector, 0.5)
    said = rule.decide(*outputs(rule, data), 0.5).predictions
    mean = data.fresh_logits.softmax(-1).mean(0)
    columns = [energy(data.fresh_logits).mean(0), torch.distributions.Categorical(mean).entropy()]
    torch.testing.assert_close(said.selection, selector.ranked(mean.amax(1), torch.stack(columns, 1)))


def test_the_threshold_is_that_of_the_rule_or_of_the_selector() -> None:
    selector = ConfidenceSelector().fit(torch.linspace(0, 1, 11))
    with pytest.raises(ValueError, match="threshold is not set"):
        rule_of(selector=selector)
    assert rule_of(selector=selector, threshold=0.25).threshold == 0.25
    found = selector.threshold(0.5)
    assert rule_of(selector=selector).threshold == found.value == 0.5
    assert rule_of(selector=selector, threshold=Threshold(0.75, 0.2, 0.2, 2, 10)).threshold == 0.75
    with pytest.raises(ValueError, match="threshold is not set"):
        rule_of(threshold=math.nan)


def test_what_does_not_fit_together_is_refused() -> None:
    data = drawn()
    three = OutlierScores(["energy"]).fit(None, drawn(3).logits)
    with pytest.raises(ValueError, match="outliers were fitted to 3 members, but the ensemble has 2"):
        rule_of(three)
    with pytest.raises(ValueError, match=r"ood_score must be one of confidence, .*energy.*, not 'neighbors'$"):
        rule_of(ood_score="neighbors")
    with pytest.raises(ValueError, match="not 'mine'; another one needs --plugin MODULE"):
        rule_of(ood_score="mine")
    logits = data.fresh_logits[0]
    with pytest.raises(ValueError, match=r"must return logits \(B, C\), not shape \(7,\)"):
        rule_of().member_outputs(0, logits[:, 0], None)
    with pytest.raises(ValueError, match="classes has 2 names, but the module 3 outputs"):
        rule_of(classes=["a", "b"]).member_outputs(0, logits, None)
    near = OutlierScores(["neighbors"]).fit(data.features)
    with pytest.raises(ValueError, match="feature_layer must be named"):
        rule_of(near).member_outputs(0, logits, None)
    assert rule_of(OutlierScores(["energy"]).fit(None, data.logits)).member_outputs(0, logits, None)[1].shape == (7, 1)


def test_a_selector_and_a_calibrator_that_do_not_belong_together_are_refused() -> None:
    data = drawn()
    with pytest.raises(ValueError, match="this TemperatureScaling is not fitted"):
        rule_of(calibrator=TemperatureScaling())
    calibrator = TemperatureScaling().fit(data.logits, data.labels)
    plain, through = (ConfidenceSelector().fit(torch.rand(9), calibrator=one) for one in (None, calibrator))
    assert rule_of(selector=through, threshold=0.5, calibrator=calibrator).calibrated_by == calibrator.fingerprint()
    assert rule_of(selector=plain, threshold=0.5).calibrated_by == "none"
    for selector, other in ((plain, calibrator), (through, None)):
        with pytest.raises(ValueError, match="the selector was fitted to confidences of the calibrator"):
            rule_of(selector=selector, threshold=0.5, calibrator=other)
