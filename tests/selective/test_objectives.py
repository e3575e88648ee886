"""The selective objectives against double sums written out, with their gradients."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrant.selective import SelectiveCalibration, SelectiveClassification, selective_mmce
from calibrant.selective.objectives import SelectorExamples, describe_objective, make_objective


def draw(n, seed=0, ties=False):
    generator = torch.Generator().manual_seed(seed)
    confidence = torch.rand(n, generator=generator, dtype=torch.float64)
    if ties:
        confidence = (confidence * 8).round() / 8
    correct = (torch.rand(n, generator=generator) < 0.6).double()
    logits = torch.randn(n, generator=generator, dtype=torch.float64) * 2
    return confidence, correct, logits


def double_sum(confidence, error, gate, width):
    total = 0.0
    for i, j in itertools.product(range(len(gate)), repeat=2):
        kernel = math.exp(-abs(float(confidence[i] - confidence[j])) / width)
        total = total + error[i] * error[j] * gate[i] * gate[j] * kernel
    return total


def agree(objective, expected, logits):
    """Equal in value and gradient."""
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    value, reference = objective(ours), expected(theirs)
    torch.testing.assert_close(value, reference)
    torch.testing.assert_close(torch.autograd.grad(value, ours), torch.autograd.grad(reference, theirs))


@pytest.mark.parametrize("ties", [False, True])
def test_printed_objective_is_the_double_sum(ties):
    confidence, correct, logits = draw(25, ties=ties)
    objective = SelectiveCalibration(eta=0.03, width=0.3)

    def expected(x):
        gate = 1 / (1 + torch.exp(-x))
        return double_sum(confidence, correct - confidence, gate, 0.3).sqrt() - 0.03 * gate.log().sum()

    agree(lambda x: objective(x, SelectorExamples(confidence, correct)), expected, logits)


def test_published_objective_is_unsigned_and_scaled():
    confidence, correct, logits = draw(25, 1)
    objective = SelectiveCalibration(eta=0.03, variant="authors_code")

    def expected(x):
        gate = 1 / (1 + torch.exp(-x))
        root = double_sum(confidence, (correct - confidence).abs() ** 2, gate, 0.2).sqrt()
        return root / 5 - 0.03 * gate.log().sum() / 25

    agree(lambda x: objective(x, SelectorExamples(confidence, correct)), expected, logits)


@pytest.mark.parametrize("n", [255, 256, 257, 600])
def test_large_and_small_batches_agree_with_the_matrix(n):
    confidence, correct, logits = draw(n, 2, ties=True)
    kernel = torch.exp(-(confidence[:, None] - confidence).abs() / 0.2)

    def expected(x):
        weights = (correct - confidence) * torch.sigmoid(x)
        return (weights @ kernel @ weights).sqrt() - 0.01 * torch.sigmoid(x).log().sum()

    agree(lambda x: SelectiveCalibration()(x, SelectorExamples(confidence, correct)), expected, logits)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(0, 10_000))
def test_group_objective_is_the_mean_over_all_groups(n, group, seed):
    confidence, correct, logits = draw(n, seed)
    group = min(group, n)

    def expected(x):
        gate = torch.sigmoid(x)
        error = correct - confidence
        subsets = [torch.tensor(s) for s in itertools.combinations(range(n), group)]
        forms = [double_sum(confidence[s], error[s], gate[s], 0.2) for s in subsets]
        barriers = [-gate[s].log().sum() for s in subsets]
        return torch.stack(forms).mean().sqrt() + 0.01 * torch.stack(barriers).mean()

    agree(lambda x: SelectiveCalibration(group=group)(x, SelectorExamples(confidence, correct)), expected, logits)


def test_eta_means_the_same_for_more_data():
    """Per example, the objective of D_val repeated k times is that of D_val, up to the diagonal."""
    confidence, correct, logits = draw(300, 3)
    objective = SelectiveCalibration()
    many = [x.repeat(7) for x in (logits, confidence, correct)]
    once = objective(logits, SelectorExamples(confidence, correct)) / objective.size(300)
    often = objective(many[0], SelectorExamples(*many[1:])) / objective.size(2100)
    torch.testing.assert_close(once, often)
    grouped = SelectiveCalibration(group=32)
    sizes = {grouped.size(n) for n in (300, 2100)}
    assert sizes == {32}


def test_all_accepted_is_mmces_sum():
    confidence, correct, _ = draw(40, 4)
    error = correct - confidence
    mmce = (double_sum(confidence, error, torch.ones(40), 0.2) / 40**2).sqrt()
    torch.testing.assert_close(selective_mmce(confidence, correct, torch.ones(40).double()), mmce * 40)
    torch.testing.assert_close(selective_mmce(confidence, correct, torch.ones(40).double(), normalized=True), mmce)
    accepting = torch.full((40,), 60.0, dtype=torch.float64)
    torch.testing.assert_close(SelectiveCalibration()(accepting, SelectorExamples(confidence, correct)), mmce * 40)


def test_perfect_confidence_has_no_error_and_a_finite_gradient():
    correct = torch.tensor([1.0, 0.0, 1.0])
    logits = torch.zeros(3, requires_grad=True)
    value = SelectiveCalibration(eta=0.5)(logits, SelectorExamples(correct, correct))
    torch.testing.assert_close(value, torch.tensor(1.5 * math.log(2)))
    torch.testing.assert_close(torch.autograd.grad(value, logits)[0], torch.full((3,), -0.25))


def test_classification_objective_is_the_quotient_with_its_penalty():
    confidence, correct, logits = draw(30, 5)
    loss = torch.rand(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    objective = SelectiveClassification(coverage=0.9, penalty=10.0)

    def expected(x):
        gate = 1 / (1 + torch.exp(-x))
        assert float(gate.detach().mean()) < 0.9
        return (gate * loss).sum() / gate.sum() + 10 * (0.9 - gate.mean()) ** 2

    agree(lambda x: objective(x, SelectorExamples(confidence, correct, loss)), expected, logits)
    free = SelectiveClassification(coverage=0.1)(logits, SelectorExamples(confidence, correct, loss))
    gate = torch.sigmoid(logits)
    torch.testing.assert_close(free, (gate * loss).sum() / gate.sum())


def test_classification_objective_survives_rejecting_everything():
    logits = torch.full((4,), -200.0, requires_grad=True)
    loss = torch.tensor([1.0, 2.0, 3.0, 4.0])
    value = SelectiveClassification()(logits, SelectorExamples(loss / 5, torch.ones(4), loss))
    assert math.isfinite(float(value.detach()))
    assert bool(torch.isfinite(torch.autograd.grad(value, logits)[0]).all())


def test_objectives_describe_themselves():
    for objective in (SelectiveCalibration(eta=0.1, group=8), SelectiveClassification(coverage=0.7)):
        settings = describe_objective(objective)
        assert make_objective(settings.pop("objective"), settings) == objective


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (lambda: SelectiveCalibration(eta=-1), "eta"),
        (lambda: SelectiveCalibration(width=0), "width"),
        (lambda: SelectiveCalibration(variant="other"), "variant"),
        (lambda: SelectiveCalibration(group=1), "group"),
        (lambda: SelectiveCalibration(group=32, variant="authors_code"), "group"),
        (lambda: SelectiveClassification(coverage=1.5), "coverage"),
        (lambda: SelectiveClassification(penalty=0), "penalty"),
        (lambda: make_objective("other", {}), "there is no objective 'other'"),
    ],
)
def test_bad_settings_are_refused(bad, match):
    with pytest.raises(ValueError, match=match):
        bad()
