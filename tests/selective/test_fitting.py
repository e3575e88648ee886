"""The exact fit by L-BFGS against Adam's, the term for outliers, and thresholds where g saturates."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from calibrant.selective import SelectiveCalibration, Selector, SelectorExamples, SelectorObjective, Training
from calibrant.selective.fitting import _Best
from calibrant.selective.lbfgs import minimize
from calibrant.selective.network import SelectorNetwork

EXACT = Training(optimizer="lbfgs")


def draw(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Overconfident, and the more so the larger the first score."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 4, generator=generator)
    confidence = 0.2 + 0.8 * torch.rand(n, generator=generator).sqrt()
    accuracy = (confidence - 0.25 * torch.sigmoid(2 * scores[:, 0])).clamp(0, 1)
    return confidence, scores, torch.rand(n, generator=generator) < accuracy


def objective_on(selector: Selector, confidence: Tensor, scores: Tensor, correct: Tensor) -> float:
    """The selector's own objective per example, on other data."""
    logits = selector._logits(confidence, scores)
    total = selector.objective(logits, SelectorExamples(confidence, correct.float()))
    return float(total) / selector.objective.size(len(logits))


@pytest.mark.parametrize("group", [None, 32])
def test_held_out_lbfgs_is_not_worse_than_a_thousand_steps_of_adam(group: int | None) -> None:
    for seed in range(3):
        data, fresh = draw(300, seed), draw(3000, 100 + seed)
        exact = Selector(group=group, seed=seed, training=EXACT).fit(*data)
        adam = Selector(group=group, seed=seed, training=Training(steps=1000)).fit(*data)
        assert objective_on(exact, *fresh) <= objective_on(adam, *fresh)
        assert exact.report_ is not None
        assert exact.report_.converged
        start = Selector(group=group, seed=seed, training=Training(steps=1, weight_decay=1e-3)).fit(*data).report_
        assert start is not None
        assert exact.report_.gradient < 0.1 * start.gradient  # at the kinks of ReLU it does not reach 0
        assert exact.report_.steps < 500


def test_the_regularized_objective_falls_below_adams() -> None:
    """With the same weight decay, in the objective that both minimize; it has many local minima, all about as low."""
    data = draw(300, 0)

    def regularized(selector: Selector) -> float:
        assert selector.network is not None
        weights = parameters_to_vector(selector.network.parameters())
        return objective_on(selector, *data) + 1e-3 / 2 * float(weights.square().sum())

    exact = Selector(training=EXACT).fit(*data)
    adam = Selector(training=Training(steps=1000, weight_decay=1e-3)).fit(*data)
    assert regularized(exact) <= 1.02 * regularized(adam)


def test_the_minimum_of_a_quadratic_is_found() -> None:
    """|w - a|^2 / 2 + decay |w|^2 / 2 is smallest at a / (1 + decay)."""
    layer = torch.nn.Linear(4, 1, dtype=torch.float64)
    goal = torch.arange(5.0, dtype=torch.float64)

    def loss() -> Tensor:
        return (parameters_to_vector(layer.parameters()) - goal).square().sum() / 2

    steps, converged = minimize(layer, loss, 0.5, 50, lambda: False)
    assert converged
    assert steps < 10
    torch.testing.assert_close(parameters_to_vector(layer.parameters()).detach(), goal / 1.5, atol=1e-4, rtol=0)
    assert minimize(layer, lambda: loss() + 1e3 * loss().square(), 0.0, 50, lambda: True) == (1, True)


def test_lbfgs_stops_on_held_out_examples_and_keeps_the_best_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    data, looks, look = draw(300, 1), [], _Best.look
    monkeypatch.setattr(_Best, "look", lambda best, value, network: looks.append(value) or look(best, value, network))
    training = Training(optimizer="lbfgs", holdout=0.3, weight_decay=0.0)
    held = Selector(training=training).fit(*data).report_
    seen = len(looks)
    free = Selector(training=Training(optimizer="lbfgs", weight_decay=0.0)).fit(*data).report_
    assert held is not None
    assert free is not None
    assert held.converged
    assert held.steps < free.steps
    assert held.objective > free.objective
    assert seen > training.patience  # that many without a gain end it


def test_lbfgs_is_the_default_and_leaves_dtype_and_randomness_alone() -> None:
    before = torch.get_rng_state()
    confidence, scores, correct = draw(200, 2)
    first, again = (Selector().fit(confidence, scores, correct) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert first.training_settings == EXACT
    assert torch.equal(first.gates, again.gates)
    assert first.gates.dtype == torch.float32
    assert {p.dtype for p in first.parameters()} == {torch.float32}
    assert Selector().fit(confidence.double(), scores.double(), correct).gates.dtype == torch.float64


@pytest.mark.parametrize("bad", [{"optimizer": "sgd"}, {"optimizer": "lbfgs", "batch_size": 32}])
def test_bad_optimizers_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=list(bad)[-1]):
        Training(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"group": 5}, {"variant": "authors_code"}])
def test_the_term_for_outliers_is_the_mean_of_log_one_minus_g(options: dict[str, object]) -> None:
    generator = torch.Generator().manual_seed(0)
    r, c = torch.rand(12, generator=generator).double(), (torch.rand(12, generator=generator) < 0.5).double()
    logits = torch.randn(12, generator=generator).double().requires_grad_()
    far = torch.randn(7, generator=generator).double().requires_grad_()
    plain = SelectiveCalibration(**options)  # type: ignore[arg-type]
    both = SelectiveCalibration(**options, zeta=0.3)  # type: ignore[arg-type]
    value = both(logits, SelectorExamples(r, c, outliers=far))
    size = {"group": 5, "variant": 1}.get(next(iter(options), ""), 12)
    extra = sum(-torch.log(1 - 1 / (1 + torch.exp(-z))) for z in far) / 7
    expected = plain(logits, SelectorExamples(r, c)) + 0.3 * size * extra
    torch.testing.assert_close(value, expected)
    ours, theirs = (torch.autograd.grad(v, (logits, far), retain_graph=True) for v in (value, expected))
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(plain(logits, SelectorExamples(r, c, outliers=far)), plain(logits, SelectorExamples(r, c)))


def near_and_far(n: int, seed: int) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """ID data that are calibrated near the middle, and far outliers on which the confidence is low."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 2, generator=generator)
    confidence = 0.3 + 0.7 * torch.rand(n, generator=generator)
    accuracy = (confidence - 0.2 * (scores[:, 1] > 0)).clamp(0, 1)
    correct = torch.rand(n, generator=generator) < accuracy
    far = torch.stack([5 + torch.randn(n, generator=generator), torch.randn(n, generator=generator) - 2], 1)
    return (confidence, scores, correct), (0.3 + 0.2 * torch.rand(n, generator=generator), far)


def test_far_outliers_are_rejected_with_zeta_only() -> None:
    inliers, outliers = near_and_far(600, 0)
    fresh = near_and_far(1000, 1)[1]
    shares = []
    for zeta in (0.0, 0.1):
        more = {} if zeta == 0 else {"outlier_confidence": outliers[0], "outlier_scores": outliers[1]}
        selector = Selector(zeta=zeta, training=EXACT).fit(*inliers, **more)
        selector.threshold(coverage=0.5)
        shares.append(float(selector.accept(*fresh).float().mean()))
    assert shares[0] > 0.8
    assert shares[1] < 0.02


def test_minibatches_draw_outliers_too() -> None:
    inliers, (far, far_scores) = near_and_far(300, 0)
    fresh, training = near_and_far(300, 1)[1], Training(batch_size=32, steps=300)
    plain = Selector(training=training).fit(*inliers)
    both = Selector(zeta=0.1, training=training).fit(*inliers, outlier_confidence=far, outlier_scores=far_scores)
    assert float(both.relaxed(*fresh).mean()) < 0.5 * float(plain.relaxed(*fresh).mean())


def test_outliers_are_split_with_the_holdout_and_refused_where_unused_or_missing() -> None:
    (confidence, scores, correct), (far, far_scores) = near_and_far(80, 0)
    given = {"outlier_confidence": far, "outlier_scores": far_scores}
    training = Training(optimizer="lbfgs", holdout=0.25)
    assert Selector(zeta=0.1, training=training).fit(confidence, scores, correct, **given).report_ is not None
    with pytest.raises(ValueError, match="outlier_confidence and outlier_scores must be given"):
        Selector(zeta=0.1).fit(confidence, scores, correct)
    with pytest.raises(ValueError, match="uses no outliers: set zeta > 0"):
        Selector().fit(confidence, scores, correct, **given)
    with pytest.raises(ValueError, match="outlier_scores have 0 columns, but scores have 2"):
        Selector(zeta=0.1).fit(confidence, scores, correct, outlier_confidence=far)
    with pytest.raises(ValueError, match="outlier_scores has 3 entries, but outlier_confidence has 80"):
        Selector(zeta=0.1).fit(confidence, scores, correct, outlier_confidence=far, outlier_scores=far_scores[:3])
    with pytest.raises(ValueError, match="zeta must not be negative"):
        Selector(zeta=-1.0)


class Pushing(SelectorObjective):
    """Drives the logits of the confident far above 0, and those of the others a little below."""

    def __call__(self, logits: Tensor, examples: SelectorExamples) -> Tensor:
        return (logits - 400 * (examples.confidence - 0.5)).square().mean()


@pytest.mark.parametrize("coverage", [0.1, 0.25, 0.4, 0.5])
def test_the_coverage_is_exact_where_g_rounds_to_one(coverage: float) -> None:
    confidence, scores, correct = draw(400, 3)
    selector = Selector(Pushing(), training=Training(steps=600, learning_rate=0.02)).fit(confidence, scores, correct)
    gate = selector.relaxed(confidence, scores)
    assert int((gate == 1).sum()) > 0.5 * 400  # thresholds on g would accept all of these
    assert selector.threshold(coverage).achieved == coverage
    accepted = selector.accept(confidence, scores)
    logits = selector._logits(confidence, scores)
    assert int(accepted.sum()) == round(coverage * 400)
    assert float(logits[accepted].min()) > float(logits[~accepted].max())


def test_selective_classification_reaches_its_coverage_and_keeps_it_when_saved() -> None:
    confidence, scores, correct = draw(1000, 4)
    loss = -torch.where(correct, confidence, (1 - confidence) / 9).clamp_min(1e-6).log()
    selector = Selector("classification", coverage=0.7, training=Training(steps=400))
    selector.fit(confidence, scores, correct, cross_entropy=loss)
    assert selector.spread > 1
    assert selector.threshold(coverage=0.5).achieved == 0.5
    config = json.loads(json.dumps(selector.config()))
    rebuilt = Selector.from_state(config, selector.state_dict())
    assert torch.equal(rebuilt.accept(confidence, scores), selector.accept(confidence, scores))
    before = {name: value for name, value in config.items() if name != "spread"}  # as 0.1.0 wrote it: g itself
    old = Selector.from_state(before, selector.state_dict())
    assert torch.equal(old.ranked(confidence, scores), old.relaxed(confidence, scores))
    with pytest.raises(ValueError, match="spread"):
        Selector.from_state({**config, "spread": 0.0}, selector.state_dict())


def test_the_papers_objective_is_compared_by_g_itself() -> None:
    confidence, scores, correct = draw(200, 5)
    selector = Selector(training=Training(steps=40)).fit(confidence, scores, correct)
    assert torch.equal(selector.ranked(confidence, scores), selector.relaxed(confidence, scores))
    assert "spread" not in selector.config()


def test_patience_counts_looks_since_the_last_improvement_and_the_best_weights_are_kept() -> None:
    network = SelectorNetwork(1, hidden=1)
    best = _Best(Training(patience=3, tolerance=0.1))
    found = []
    for value in (2.0, 1.9, 1.5, 1.49, 1.6, 1.4):  # at least a tenth lower: the first and the third
        with torch.no_grad():
            network.layers[0].bias.fill_(value)
        found.append(best.look(value, network))
    assert found == [False] * 5 + [True]
    assert best.value == 1.4
    assert float(best.weights["layers.0.bias"]) == pytest.approx(1.4)


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_the_report_has_the_objective_per_example(optimizer: str) -> None:
    data = draw(50, 6)
    selector = Selector(training=Training(optimizer=optimizer, steps=5)).fit(*data)  # type: ignore[arg-type]
    assert selector.report_ is not None
    assert selector.report_.objective == pytest.approx(objective_on(selector, *data), rel=1e-5)
