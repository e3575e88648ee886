"""Total variation and ranking measures against simulation, scikit-learn and counting by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from calibrant import metrics

level = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.2, 0.4, 0.6, 1.0]))
sample = st.lists(level, min_size=1, max_size=40)
score = st.lists(st.one_of(st.floats(-5, 5), st.sampled_from([-1.0, 0.0, 2.0])), min_size=1, max_size=40)


@given(sample, sample, st.integers(1, 20))
@settings(deadline=None, max_examples=80)
def test_total_variation_is_symmetric_and_a_fraction(first, second, bins):
    value = metrics.total_variation(first, second, bins)
    assert 0 <= value <= 1 + 1e-12
    assert metrics.total_variation(second, first, bins) == pytest.approx(value, abs=1e-12)
    assert metrics.total_variation(first, first, bins) == pytest.approx(0, abs=1e-12)
    assert metrics.ood_detection_probability(first, second, bins) == pytest.approx((1 + value) / 2)
    assert metrics.total_variation(first, second, 1) == pytest.approx(0, abs=1e-12)
    assert metrics.total_variation(first, second, bins, corrected=True) <= value + 1e-12


def test_total_variation_counted_by_hand():
    # Bins (0, .5] and (.5, 1]; confidence 1 and 0 are kept.
    assert metrics.total_variation([0.0, 0.5, 1.0], [0.6, 1.0, 1.0, 0.1], bins=2) == pytest.approx(2 / 3 - 1 / 4)
    assert metrics.total_variation([1.0], [0.0]) == 1


def _shares(a, b, bins=15):
    middle = (np.arange(bins) + 0.5) / bins
    weights = middle ** (a - 1) * (1 - middle) ** (b - 1)
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("p", "q", "n", "k", "ratio"),
    [
        (_shares(1, 1), _shares(1, 1), 40, 40, 0.3),
        (_shares(1, 1), _shares(1, 1), 2000, 1000, 0.3),
        (_shares(8, 1.2), _shares(8, 1.2), 40, 400, 0.35),
        (_shares(8, 1.2), _shares(8, 1.2), 200, 200, 0.3),
        (_shares(8, 1.2), _shares(6, 1.2), 40, 40, 0.5),
        (_shares(5, 1.2), _shares(3, 1.5), 40, 400, 0.5),
        (_shares(5, 1.2), _shares(3, 1.5), 200, 200, 0.5),
        (_shares(8, 1), _shares(2, 3), 40, 40, 0.6),
    ],
    ids=["null-40", "null-2000", "null-uneven", "null-200", "small-40", "mid-uneven", "mid-200", "big-40"],
)
def test_the_correction_removes_most_of_the_bias(p, q, n, k, ratio):
    rng = np.random.default_rng(0)
    middle = (np.arange(15) + 0.5) / 15
    truth = np.abs(p - q).sum() / 2
    plain, corrected = [], []
    for _ in range(400):
        draws = rng.choice(middle, n, p=p), rng.choice(middle, k, p=q)
        plain.append(metrics.total_variation(*draws) - truth)
        corrected.append(metrics.total_variation(*draws, corrected=True) - truth)
    noise = 3 * np.std(corrected) / 20
    assert np.mean(plain) > 0
    assert abs(np.mean(corrected)) < ratio * np.mean(plain) + noise


@given(score, score)
@settings(deadline=None, max_examples=80)
def test_ranking_measures_are_those_of_scikit_learn(inside, outside):
    scores, is_ood = np.array(inside + outside), np.repeat([0, 1], [len(inside), len(outside)])
    assert metrics.auroc(inside, outside) == pytest.approx(roc_auc_score(is_ood, scores))
    for positive, sign, target in (("ood", 1, is_ood), ("id", -1, 1 - is_ood)):
        precision = average_precision_score(target, sign * scores)
        assert metrics.aupr(inside, outside, positive=positive) == pytest.approx(precision)
        false, found, _ = roc_curve(target, sign * scores, drop_intermediate=False)
        for tpr in (0.5, 0.95, 1.0):
            expected = false[found >= tpr].min()
            assert metrics.fpr_at_tpr(inside, outside, tpr, positive=positive) == pytest.approx(expected)


def test_auroc_counts_pairs():
    rng = np.random.default_rng(0)
    inside, outside = rng.integers(0, 9, 50) / 9, rng.integers(3, 12, 30) / 9
    pairs = np.sign(outside[:, None] - inside) / 2 + 0.5
    assert metrics.auroc(inside, outside) == pytest.approx(pairs.mean())


@pytest.mark.parametrize("measure", [metrics.total_variation, metrics.ood_detection_probability])
def test_bad_confidences_are_named(measure):
    with pytest.raises(ValueError, match=r"id_confidence must lie in \[0, 1\]"):
        measure([1.5], [0.5])
    with pytest.raises(ValueError, match="ood_confidence is empty"):
        measure([0.5], torch.zeros(0))
    with pytest.raises(ValueError, match="ood_confidence holds NaN"):
        measure([0.5], [float("nan")])
    with pytest.raises(ValueError, match="bins"):
        measure([0.5], [0.5], 0)


@pytest.mark.parametrize("measure", [metrics.auroc, metrics.aupr, metrics.fpr_at_tpr])
def test_bad_scores_are_named(measure):
    with pytest.raises(ValueError, match="id_scores holds NaN"):
        measure([float("nan")], [0.5])
    with pytest.raises(ValueError, match="ood_scores must be floating"):
        measure([0.5], [1, 2])
    with pytest.raises(ValueError, match="ood_scores must have 1 dimension"):
        measure([0.5], [[0.5]])


def test_bad_options():
    with pytest.raises(ValueError, match="tpr"):
        metrics.fpr_at_tpr([0.5], [0.5], 0.0)
    with pytest.raises(ValueError, match="positive"):
        metrics.aupr([0.5], [0.5], positive="both")
