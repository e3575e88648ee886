"""OOD scores against formulas in numpy and scipy."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp, softmax
from scipy.stats import entropy

from calibrant.detectors import logits as ood_scores


@pytest.fixture
def logits():
    return torch.randn(5, 30, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4


def test_scores_of_members(logits):
    z = logits.numpy()
    p = softmax(z, -1)
    mean = p.mean(0)
    expected = {
        "msp": 1 - mean.max(-1),
        "max_logit": -z.max(-1).mean(0),
        "energy": -logsumexp(z, -1).mean(0),
        "entropy": entropy(mean, axis=-1),
        "mutual_information": entropy(mean, axis=-1) - entropy(p, axis=-1).mean(0),
    }
    assert set(expected) == set(ood_scores.SCORES)
    for name, value in expected.items():
        np.testing.assert_allclose(ood_scores.SCORES[name](logits), value, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(ood_scores.score_rows(name, logits), value, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_energy_at_a_temperature(logits, temperature):
    expected = -temperature * logsumexp(logits.numpy() / temperature, -1).mean(0)
    np.testing.assert_allclose(ood_scores.energy(logits, temperature), expected)


@pytest.mark.parametrize("name", list(ood_scores.SCORES))
def test_one_network_is_an_ensemble_of_one(logits, name):
    score = ood_scores.SCORES[name]
    assert torch.equal(score(logits[0]), score(logits[:1]))
    assert score(logits.float()).dtype == torch.float32
    assert score(logits).shape == (30,)


@pytest.mark.parametrize("name", ["msp", "max_logit", "energy", "entropy"])
def test_a_flatter_prediction_is_more_outlying(name):
    sharp = torch.tensor([8.0, 0.0, 0.0])
    scores = ood_scores.SCORES[name](torch.stack([sharp, sharp / 4, sharp / 100]))
    assert scores[0] < scores[1] < scores[2]


def test_disagreement_and_its_absence(logits):
    same = logits[:1].expand(4, -1, -1)
    torch.testing.assert_close(ood_scores.mutual_information(same), torch.zeros(30, dtype=torch.float64))
    members = torch.eye(3)[:, None] * 60
    torch.testing.assert_close(ood_scores.mutual_information(members), torch.tensor([3.0]).log())


def test_extreme_logits_stay_finite():
    extreme = torch.tensor([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 0.0]]])
    for score in ood_scores.SCORES.values():
        assert torch.isfinite(score(extreme)).all()


@pytest.mark.parametrize("name", list(ood_scores.SCORES))
def test_bad_input_is_named(name):
    score = ood_scores.SCORES[name]
    for bad in (torch.zeros(3), torch.zeros(1, 1, 1, 1), torch.zeros(0, 3), torch.tensor([[1, 2]]), [[float("nan")]]):
        with pytest.raises(ValueError, match="logits"):
            score(bad)


def test_bad_temperature():
    with pytest.raises(ValueError, match="temperature"):
        ood_scores.energy(torch.zeros(1, 2), 0.0)


@pytest.mark.parametrize("name", ["predictive_entropy", "mutual_information"])
def test_half_precision_logits_at_their_limit_have_an_entropy(name: str) -> None:
    """The difference of two logits overflows in float16, and 0 log 0 is 0."""
    logits = torch.tensor([[[6e4, -6e4, 0.0]], [[-6e4, 6e4, 0.0]]], dtype=torch.float16)
    score = getattr(ood_scores, name)
    torch.testing.assert_close(score(logits).float(), torch.tensor([2.0]).log(), atol=2e-3, rtol=0)
    torch.testing.assert_close(score(logits[:1]).float(), torch.zeros(1))
