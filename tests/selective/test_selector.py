"""The selector: fitting, thresholds, state, export, degenerate input."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch.export import Dim, export

from calibrant.metrics import threshold_at_coverage
from calibrant.selective import ConfidenceSelector, Selector, Training, threshold_for_coverage

QUICK = Training(steps=40)


def draw(n=400, seed=0):
    """Overconfident where the first score is large."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 4, generator=generator)
    confidence = 0.3 + 0.65 * torch.rand(n, generator=generator)
    accuracy = torch.where(scores[:, 0] > 0.5, confidence - 0.3, confidence)
    return confidence, scores, torch.rand(n, generator=generator) < accuracy


def calibration_gap(confidence, correct, accepted):
    return abs(float((correct.float() - confidence)[accepted].mean()))


def test_rejects_where_confidence_misleads():
    selector = Selector(training=Training(learning_rate=0.005, steps=200)).fit(*draw(1500))
    confidence, scores, correct = draw(4000, 1)
    selector.threshold(coverage=0.6)
    accepted = selector.accept(confidence, scores)
    everything = torch.ones_like(accepted)
    assert abs(float(accepted.float().mean()) - 0.6) < 0.05
    assert calibration_gap(confidence, correct, accepted) < 0.5 * calibration_gap(confidence, correct, everything)
    assert float(scores[accepted, 0].mean()) < 0 < float(scores[~accepted, 0].mean())


def test_the_fit_lowers_the_objective_and_stops_by_itself():
    data = draw(200)
    start = Selector(training=Training(steps=1)).fit(*data).report_
    end = Selector(training=Training(steps=3000, learning_rate=0.005)).fit(*data).report_
    assert end.objective < 0.8 * start.objective
    assert end.converged
    assert end.steps < 3000


def test_the_same_seed_gives_the_same_selector():
    first, again, other = (Selector(seed=s, training=QUICK).fit(*draw()).relaxed(*draw(50, 1)[:2]) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("training", [QUICK, Training(batch_size=32, steps=20, holdout=0.2)])
def test_fitting_leaves_the_global_random_state_alone(training):
    before = torch.get_rng_state()
    Selector(training=training).fit(*draw())
    assert torch.equal(before, torch.get_rng_state())


def test_minibatches_reach_what_the_exact_objective_of_groups_reaches():
    data = draw(250)
    exact = Selector(group=32, training=Training(steps=300, learning_rate=0.005)).fit(*data)
    batches = Selector(group=32, training=Training(batch_size=32, steps=1500)).fit(*data)
    assert batches.report_.steps == 1500
    assert batches.report_.objective == pytest.approx(exact.report_.objective, rel=0.1)


def test_held_out_examples_choose_the_weights():
    data = draw(120)
    selector = Selector(training=Training(holdout=0.3, steps=2000, learning_rate=0.02)).fit(*data)
    assert selector.report_.converged
    free = Selector(training=Training(steps=2000, learning_rate=0.02)).fit(*data)
    assert free.report_.objective < selector.report_.objective


def test_one_view_is_the_plain_data_and_views_are_averaged():
    confidence, scores, correct = draw(100)
    plain = Selector(training=QUICK).fit(confidence, scores, correct)
    stacked = Selector(training=QUICK).fit(confidence[None], scores[None], correct)
    assert torch.equal(plain.gates, stacked.gates)
    twice = Selector(training=QUICK).fit(
        torch.stack([confidence] * 2), torch.stack([scores] * 2), torch.stack([correct] * 2)
    )
    torch.testing.assert_close(plain.gates, twice.gates, atol=1e-4, rtol=1e-4)


def test_minibatches_draw_from_all_views():
    confidence, scores, correct = draw(100)
    views = torch.stack([confidence, 1 - confidence]), torch.stack([scores, -scores]), correct
    training = Training(batch_size=32, steps=30)
    mixed = Selector(training=training).fit(*views)
    first = Selector(training=training).fit(confidence, scores, correct)
    assert mixed.gates.shape == first.gates.shape
    assert not torch.allclose(mixed.gates, first.gates, atol=1e-3)


def test_selective_classification_prefers_what_is_likely_right():
    confidence, scores, correct = draw(800)
    loss = -torch.where(correct, confidence, (1 - confidence) / 9).log()
    selector = Selector("classification", coverage=0.7, training=Training(steps=300))
    selector.fit(confidence, scores, correct, cross_entropy=loss)
    selector.threshold(coverage=0.5)
    fresh, fresh_scores, outcome = draw(3000, 1)
    accepted = selector.accept(fresh, fresh_scores)
    assert float(outcome[accepted].float().mean()) > float(outcome.float().mean()) + 0.05


def test_confidence_baseline_accepts_the_most_confident():
    confidence, scores, correct = draw(200)
    selector = ConfidenceSelector().fit(confidence, scores, correct)
    assert selector.threshold(coverage=0.25).accepted == 50
    accepted = selector.accept(confidence, scores)
    assert float(confidence[accepted].min()) > float(confidence[~accepted].max())
    assert torch.equal(selector.relaxed(confidence), confidence)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.8, 0.9]), min_size=1, max_size=20), st.floats(0, 1))
def test_threshold_gives_the_smallest_achievable_coverage_not_below_the_wanted(values, coverage):
    gate = torch.tensor(values, dtype=torch.float64)
    found = threshold_for_coverage(gate, coverage)
    achievable = [0.0, *(sum(other >= v for other in values) / len(values) for v in values)]
    assert found.achieved == min(a for a in achievable if a >= coverage)
    assert int((gate >= found.value).sum()) == found.accepted
    assert found.achieved == found.accepted / found.total == found.accepted / len(values)


def test_a_coverage_one_rounding_above_a_hundredth_takes_one_example_more():
    """35 of 100 are less than 0.35000000000000003, as a grid of multiples of 0.01 has it."""
    gate = torch.rand(100, generator=torch.Generator().manual_seed(0))
    for coverage in np.linspace(0, 1, 101).tolist():
        enough = min(k for k in range(101) if k / 100 >= coverage)
        found = threshold_for_coverage(gate, coverage)
        assert (found.accepted, found.achieved) == (enough, enough / 100)


def test_every_tenth_is_exact_without_ties():
    gate = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    for step in range(101):
        assert threshold_for_coverage(gate, step / 100).accepted == 10 * step


def test_coverage_0_and_1_hold_on_any_data():
    selector = Selector(training=QUICK).fit(*draw())
    confidence, scores, _ = draw(50, 7)
    selector.threshold(coverage=0.0)
    assert not bool(selector.accept(confidence, scores * 100).any())
    selector.threshold(coverage=1.0)
    assert bool(selector.accept(confidence, scores * 100).all())


def test_one_selector_serves_every_coverage_nested():
    selector = Selector(training=QUICK).fit(*draw())
    confidence, scores, _ = draw(300, 1)
    previous = torch.zeros(300, dtype=torch.bool)
    for coverage in (0.1, 0.5, 0.9):
        threshold = selector.threshold(coverage)
        accepted = selector.accept(confidence, scores, threshold)
        assert torch.equal(accepted, selector.accept(confidence, scores))
        assert bool((accepted | ~previous).all())
        previous = accepted
    other = selector.threshold(0.5, confidence, scores)
    assert (other.accepted, other.total) == (150, 300)


@pytest.mark.parametrize("kind", ["calibration", "classification", "confidence"])
def test_a_selector_is_its_config_and_its_tensors(kind):
    confidence, scores, correct = draw()
    if kind == "confidence":
        selector = ConfidenceSelector().fit(confidence, scores, correct)
    else:
        extra = {"cross_entropy": torch.rand(400)} if kind == "classification" else {}
        selector = Selector(kind, training=QUICK).fit(confidence, scores, correct, **extra)
    selector.threshold(0.4)
    config = json.loads(json.dumps(selector.config()))
    rebuilt = type(selector).from_state(config, load(save(selector.state_dict())))
    fresh, fresh_scores, _ = draw(60, 1)
    assert torch.equal(rebuilt.relaxed(fresh, fresh_scores), selector.relaxed(fresh, fresh_scores))
    assert torch.equal(rebuilt.accept(fresh, fresh_scores), selector.accept(fresh, fresh_scores))
    assert rebuilt.threshold(0.7) == selector.threshold(0.7)
    assert rebuilt.config() == selector.config()


def test_the_entropy_is_the_last_column_and_cannot_be_forgotten():
    confidence, scores, correct = draw()
    probabilities = torch.stack([confidence, 1 - confidence], 1)
    selector = Selector(entropy=True, training=QUICK)
    columns = selector.columns(scores, probabilities)
    assert torch.equal(columns[:, :4], scores)
    torch.testing.assert_close(columns[:, 4], torch.distributions.Categorical(probabilities).entropy())
    assert selector.columns(None, torch.eye(3)).tolist() == [[0], [0], [0]]
    shaped = selector.columns(scores.view(4, 100, 4), probabilities.view(4, 100, 2))
    assert torch.equal(shaped.view(400, 5), columns)
    assert Selector().columns(scores, probabilities) is scores
    with pytest.raises(ValueError, match="scores must end with the entropy"):
        selector.fit(confidence, None, correct)
    state = selector.fit(confidence, columns, correct).state_dict()
    assert Selector.from_state(json.loads(json.dumps(selector.config())), state).entropy


@pytest.mark.parametrize("fingerprint", ["none", "temperature:0123456789abcdef"])
def test_a_saved_selector_remembers_the_calibrator_of_its_confidences(fingerprint):
    confidence, scores, correct = draw(20)
    selector = ConfidenceSelector().fit(confidence, scores, correct, calibrator=fingerprint)
    assert selector.config() == ({} if fingerprint == "none" else {"calibrator": fingerprint})
    assert ConfidenceSelector.from_state(selector.config(), selector.state_dict()).calibrator == fingerprint


def test_export_takes_any_batch():
    selector = Selector(training=QUICK).fit(*draw())
    batch = Dim("batch", min=2, max=4096)
    example = (torch.rand(5), torch.randn(5, 4))
    program = export(selector, example, dynamic_shapes={"confidence": {0: batch}, "scores": {0: batch}})
    confidence, scores, _ = draw(33, 1)
    torch.testing.assert_close(program.module()(confidence, scores), selector.relaxed(confidence, scores))


def test_the_network_has_the_papers_size():
    selector = Selector(training=QUICK).fit(*draw())
    assert sum(p.numel() for p in selector.parameters()) == 4609


def test_double_precision_is_kept():
    confidence, scores, correct = draw()
    selector = Selector(training=QUICK).fit(confidence.double(), scores.double(), correct)
    assert selector.relaxed(confidence, scores).dtype == torch.float64
    rebuilt = Selector.from_state(selector.config(), selector.state_dict())
    assert torch.equal(rebuilt.relaxed(confidence, scores), selector.relaxed(confidence, scores))


@pytest.mark.parametrize("outcome", ["all correct", "all wrong", "one example", "constant inputs", "no scores"])
def test_degenerate_validation_data(outcome):
    confidence, scores, correct = draw(60)
    if outcome == "all correct":
        correct = torch.ones(60)
    elif outcome == "all wrong":
        correct = torch.zeros(60)
    elif outcome == "one example":
        confidence, scores, correct = confidence[:1], scores[:1], correct[:1]
    elif outcome == "constant inputs":
        confidence, scores = torch.full((60,), 0.7), torch.zeros(60, 4)
    else:
        scores = None
    selector = Selector(training=QUICK).fit(confidence, scores, correct)
    gate = selector.relaxed(confidence, scores)
    assert bool(((gate > 0) & (gate < 1)).all())
    found = selector.threshold(coverage=0.5)
    assert found.achieved >= 0.5
    assert int(selector.accept(confidence, scores).sum()) == found.accepted
    if outcome == "constant inputs":
        assert found.achieved == 1.0


def test_saturated_confidence_is_accepted_as_input():
    scores = draw(50)[1]
    selector = Selector(training=QUICK).fit(torch.ones(50), scores, torch.ones(50))
    assert bool(torch.isfinite(selector.relaxed(torch.zeros(50), scores)).all())
    assert math.isfinite(selector.report_.objective)


def test_bad_input_is_refused():
    confidence, scores, correct = draw(20)
    selector = Selector(training=QUICK)
    with pytest.raises(ValueError, match="not fitted"):
        selector.relaxed(confidence, scores)
    with pytest.raises(ValueError, match="not fitted"):
        selector.threshold(coverage=0.5)
    with pytest.raises(ValueError, match=r"confidence must lie in \[0, 1\]"):
        selector.fit(confidence + 1, scores, correct)
    with pytest.raises(ValueError, match="correct has shape"):
        selector.fit(confidence, scores, correct[:5])
    with pytest.raises(ValueError, match="correct must hold only"):
        selector.fit(confidence, scores, torch.full((20,), 2))
    with pytest.raises(ValueError, match="scores has 5 entries"):
        selector.fit(confidence, scores[:5], correct)
    with pytest.raises(ValueError, match="scores must be floating point of shape"):
        selector.fit(confidence, scores[:, 0], correct)
    with pytest.raises(ValueError, match="scores holds NaN"):
        selector.fit(confidence, scores / 0 * 0, correct)
    with pytest.raises(ValueError, match="cross_entropy"):
        Selector("classification", training=QUICK).fit(confidence, scores, correct)
    selector.fit(confidence, scores, correct)
    with pytest.raises(ValueError, match="scores have 3 columns, but the selector was fitted with 4"):
        selector.relaxed(confidence, scores[:, :3])
    with pytest.raises(ValueError, match="scores have 0 columns"):
        selector.relaxed(confidence)
    with pytest.raises(ValueError, match="threshold is not set"):
        selector.accept(confidence, scores)
    with pytest.raises(ValueError, match=r"coverage must lie in \[0, 1\]"):
        selector.threshold(coverage=1.1)
    with pytest.raises(ValueError, match="leaves none"):
        Selector(training=Training(holdout=0.99)).fit(confidence, scores, correct)


@pytest.mark.parametrize("bad", [{"steps": 0}, {"batch_size": -1}, {"learning_rate": 0.0}, {"holdout": 1.0}])
def test_bad_training_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Training(**bad)


@given(st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.7, 0.9]), min_size=1, max_size=30), st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=100)
def test_the_selectors_threshold_accepts_what_the_measures_threshold_accepts(gates, coverage):
    gate = torch.tensor(gates, dtype=torch.float64)
    own, measured = threshold_for_coverage(gate, coverage), threshold_at_coverage(gate, coverage)
    assert torch.equal(gate >= own.value, gate >= measured)
