"""Arguments that gave NaN or an error of the library's own."""

from __future__ import annotations

import pytest
import torch

from calibrant.detectors.density import KernelDensityScore
from calibrant.selective import Selector, Training, selective_mmce


def test_a_selector_is_fitted_to_scores_that_carry_a_graph():
    confidence = torch.rand(40, generator=torch.Generator().manual_seed(0))
    scores = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    plain = Selector(training=Training(steps=3)).fit(confidence, scores, confidence > 0.5)
    carried = (scores.requires_grad_() * 1.0).clone()
    found = Selector(training=Training(steps=3)).fit(confidence, carried, confidence > 0.5)
    assert torch.equal(plain.gates, found.gates)


def test_selective_mmce_checks_what_it_is_given():
    confidence, correct = torch.tensor([0.8, 0.8]), torch.tensor([True, False])
    assert float(selective_mmce(confidence, correct, torch.tensor([True, False]))) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="gate accepts nothing"):
        selective_mmce(confidence, correct, torch.zeros(2), normalized=True)
    with pytest.raises(ValueError, match="confidence must lie in"):
        selective_mmce(confidence + 1, correct, torch.ones(2))
    with pytest.raises(ValueError, match="gate has 3 entries"):
        selective_mmce(confidence, correct, torch.ones(3))


def test_the_density_of_a_point_at_1e20_is_not_nan():
    score = KernelDensityScore().fit(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)))
    near, far = score.score(torch.tensor([[0.0, 0.0, 0.0], [1e20, 1e20, 1e20]]))
    assert far.isfinite()
    assert far > near
