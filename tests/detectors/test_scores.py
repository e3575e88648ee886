"""Each outlier score against an independent computation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor, NearestNeighbors
from sklearn.svm import OneClassSVM
from torch import nn

from calibrant.detectors import (
    IsolationForestScore,
    KernelDensityScore,
    LocalOutlierFactorScore,
    NeighborDistanceScore,
    OneClassSVMScore,
    svm,
)
from calibrant.slots import lookup

SCORES = {name: lookup("detector", name) for name in ("density", "forest", "lof", "neighbors", "svm")}


def correlated(n, d, seed=0, shift=0.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(d, d, generator=torch.Generator().manual_seed(99), dtype=torch.float64) / math.sqrt(d)
    return (torch.randn(n, d, generator=generator, dtype=torch.float64) @ mixing + shift).to(dtype)


def standardized(reference, queries):
    mean, std = reference.double().mean(0), reference.double().std(0, correction=0)
    return (reference.double() - mean) / std, (queries.double() - mean) / std


def brute_density(reference, queries, h):
    squared = (queries[:, None] - reference[None]).square().sum(2)
    return math.log(len(reference)) - torch.logsumexp(-squared / h, 1)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_density_is_the_float64_sum_in_128_dimensions(shift):
    reference, queries = correlated(700, 128, 1, shift), correlated(60, 128, 2, shift)
    queries[0] = reference[0]
    queries[1] += 20
    found = KernelDensityScore(block_size=256).fit(reference).score(queries)
    h = 2 * 700 ** (-2 / 132)
    torch.testing.assert_close(
        found.double(), brute_density(*standardized(reference, queries), h), atol=1e-3, rtol=1e-6
    )


def test_density_default_bandwidth_without_standardising_follows_the_spread():
    reference, queries = correlated(300, 4, 1) * 50, correlated(20, 4, 2) * 50
    spread = reference.double().var(0, correction=0).mean().sqrt()
    h = 2 * (300 ** (-1 / 8) * spread) ** 2
    found = KernelDensityScore(standardize=False).fit(reference).score(queries)
    torch.testing.assert_close(
        found.double(), brute_density(reference.double(), queries.double(), h), rtol=1e-4, atol=1e-4
    )


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 40),
    st.integers(1, 6),
    st.floats(0.05, 5.0),
    st.integers(1, 17),
    st.integers(0, 1000),
)
def test_density_in_any_blocks(n, d, bandwidth, block_size, seed):
    reference, queries = correlated(n, d, seed, dtype=torch.float64), correlated(7, d, seed + 1, dtype=torch.float64)
    score = KernelDensityScore(bandwidth=bandwidth, standardize=False, block_size=block_size).fit(reference)
    expected = brute_density(reference, queries, 2 * bandwidth**2)
    torch.testing.assert_close(score.score(queries), expected)


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_neighbors_are_scikit_learns(shift):
    reference, queries = correlated(900, 64, 1, shift), correlated(80, 64, 2, shift)
    queries[:10] = reference[:10]
    found = NeighborDistanceScore(standardize=False, block_size=128).fit(reference).score(queries)
    search = NearestNeighbors(n_neighbors=8, algorithm="brute").fit(reference.double().numpy())
    expected = search.kneighbors(queries.double().numpy())[0][:, -1]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_a_reference_point_is_at_distance_zero_from_itself():
    reference = correlated(500, 128, 1, shift=10.0)
    found = NeighborDistanceScore(k=1).fit(reference).score(reference[:50])
    assert bool((found == 0).all())


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
def test_neighbors_by_sorting(n, d, k, block_size, seed):
    reference, queries = correlated(n, d, seed, dtype=torch.float64), correlated(5, d, seed + 1, dtype=torch.float64)
    found = NeighborDistanceScore(k=k, standardize=False, block_size=block_size).fit(reference).score(queries)
    expected = torch.cdist(queries, reference, compute_mode="donot_use_mm_for_euclid_dist").sort(1).values
    torch.testing.assert_close(found, expected[:, min(k, n) - 1])
    mean = NeighborDistanceScore(k=k, distance="mean", standardize=False, block_size=block_size).fit(reference)
    torch.testing.assert_close(mean.score(queries), expected[:, :k].mean(1))


@pytest.mark.parametrize("shift", [0.0, 100.0])
def test_the_local_outlier_factor_is_scikit_learns(shift):
    reference, queries = correlated(900, 64, 1, shift), correlated(80, 64, 2, shift)
    queries[:10] += 3
    found = LocalOutlierFactorScore(standardize=False, block_size=128).fit(reference).score(queries)
    machine = LocalOutlierFactor(novelty=True, algorithm="brute").fit(reference.double().numpy())
    np.testing.assert_allclose(found.numpy(), -machine.score_samples(queries.double().numpy()), rtol=1e-5)
    assert found[:10].min() > found[10:].median()


def test_rounding_does_not_decide_the_local_outlier_factor_where_points_coincide():
    reference = correlated(500, 64, 1)
    reference[:40] = reference[0]
    queries = torch.stack([reference[0], reference[0] * (1 + 1e-7), reference[100]])
    found = LocalOutlierFactorScore().fit(reference).score(queries)
    assert found[0] == pytest.approx(1)
    assert found[1] < 2
    assert found[2] < 2


def brute_factor(reference, queries, k):
    """LOF of one query after another, by its definition."""
    k = min(k, len(reference) - 1)

    def neighbors(point, others):
        order = sorted(others, key=lambda o: float((point - reference[o]).norm()))[:k]
        return [(o, float((point - reference[o]).norm())) for o in order]

    own = [neighbors(p, [o for o in range(len(reference)) if o != i]) for i, p in enumerate(reference)]

    def density(near):
        mean = sum(max(own[o][-1][1], d) for o, d in near) / len(near)
        return 1 / (mean + 1e-10)  # as scikit-learn has it, lest coinciding points divide by 0

    found = []
    for query in queries:
        near = neighbors(query, range(len(reference)))
        found.append(sum(density(own[o]) for o, _ in near) / len(near) / density(near))
    return torch.tensor(found, dtype=torch.float64)


@settings(deadline=None, max_examples=25)
@example(28, 1, 1, 1, 29)  # points so close that the 1e-10 shows
@given(st.integers(3, 30), st.integers(1, 5), st.integers(1, 40), st.integers(1, 9), st.integers(0, 1000))
def test_the_local_outlier_factor_by_its_definition(n, d, k, block_size, seed):
    reference, queries = correlated(n, d, seed, dtype=torch.float64), correlated(5, d, seed + 1, dtype=torch.float64)
    found = LocalOutlierFactorScore(k=k, standardize=False, block_size=block_size).fit(reference).score(queries)
    torch.testing.assert_close(found, brute_factor(reference, queries, k))


@pytest.mark.parametrize("count", [3, 100, 1500])
def test_forest_is_scikit_learns(count):
    reference, queries = correlated(count, 16, 1), correlated(200, 16, 2) * 1.5
    found = IsolationForestScore(standardize=False, seed=3).fit(reference).score(queries)
    mean = reference.double().mean(0).float()
    forest = IsolationForest(random_state=3).fit((reference - mean).numpy())
    expected = -forest.score_samples((queries - mean).numpy())
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_forest_splits_points_on_a_threshold_as_scikit_learn_does():
    grid = torch.arange(16.0).repeat(30)[:, None].expand(-1, 3).contiguous() / 16
    found = IsolationForestScore(standardize=False, trees=20).fit(grid)
    center = grid.double().mean(0).float()
    forest = IsolationForest(n_estimators=20, random_state=0).fit((grid - center).numpy())
    np.testing.assert_allclose(found.score(grid).numpy(), -forest.score_samples((grid - center).numpy()), atol=1e-6)


@pytest.fixture(scope="module")
def digit_features():
    """Features entering the last layer of a small network trained on digits, and pictures of noise."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        head = nn.Linear(64, 10)
        noise = torch.rand(100, 64)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(body(x[:1300])), y[:1300]).backward()
        optimizer.step()
    with torch.no_grad():
        return body(x[:1300]), body(x[1300:]), body(noise)


def test_svm_ranks_like_the_exact_one_on_features_of_a_trained_network(digit_features):
    train, test, noise = digit_features
    queries = torch.cat([test, noise])
    score = OneClassSVMScore().fit(train)
    exact = OneClassSVMScore(exact=True).fit(train)
    assert spearmanr(score.score(queries), exact.score(queries))[0] >= 0.99
    assert spearmanr(score.score(test), exact.score(test))[0] >= 0.99
    assert 64 <= score.components_ < len(train)
    assert float(score.rank_correlation_) >= 0.995
    assert exact.components_ >= len(train) / 2


def test_svm_takes_more_components_for_a_narrower_kernel(digit_features):
    train, test, _ = digit_features
    wide = OneClassSVMScore().fit(train)
    narrow = OneClassSVMScore(gamma=0.1).fit(train)
    exact = OneClassSVMScore(gamma=0.1, exact=True).fit(train)
    assert narrow.components_ > wide.components_
    assert spearmanr(narrow.score(test), exact.score(test))[0] >= 0.97


def test_exact_svm_is_scikit_learns_decision_over_nu_n(digit_features):
    train, test, _ = digit_features
    varying = train.std(0) > 0
    reference, queries = standardized(train[:, varying], test[:, varying])
    machine = OneClassSVM(nu=0.3, gamma=0.02).fit(reference.numpy())
    expected = -machine.decision_function(queries.numpy()) / (0.3 * len(reference))
    score = OneClassSVMScore(exact=True, nu=0.3, gamma=0.02, block_size=100).fit(train[:, varying])
    np.testing.assert_allclose(score.score(test[:, varying]).numpy(), expected, atol=2e-5)
    torch.testing.assert_close(score.coefficients.sum(), torch.tensor(1.0))


def test_svm_approximation_has_the_scale_of_the_exact_one(digit_features):
    train, test, _ = digit_features
    approximate, exact = OneClassSVMScore(components=512).fit(train), OneClassSVMScore(exact=True).fit(train)
    assert approximate.components_ == 512
    assert math.isnan(float(approximate.rank_correlation_))
    torch.testing.assert_close(approximate.score(test), exact.score(test), atol=2e-3, rtol=0.05)


@pytest.mark.parametrize("name", sorted(SCORES))
def test_far_points_score_higher(name, digit_features):
    train, test, noise = digit_features
    score = SCORES[name]().fit(train)
    assert score.score(noise).median() > score.score(test).quantile(0.9)
    assert score.score(test + 100).min() >= score.score(test).median()


@pytest.mark.parametrize("name", sorted(SCORES))
def test_scores_do_not_depend_on_scale_and_origin(name):
    reference, queries = correlated(200, 5, 1, dtype=torch.float64), correlated(30, 5, 2, dtype=torch.float64)
    stretch = torch.tensor([1.0, 2.0, 4.0, 0.5, 8.0], dtype=torch.float64)
    plain = SCORES[name]().fit(reference).score(queries)
    moved = SCORES[name]().fit(reference * stretch + 3).score(queries * stretch + 3)
    torch.testing.assert_close(plain, moved, atol=1e-3, rtol=1e-3)


def test_svm_components_are_chosen_on_at_most_two_thousand_points(monkeypatch):
    sizes = []

    def exact(points, gamma, nu):
        sizes.append(len(points))
        return points[:1], torch.zeros(1, dtype=points.dtype), 0.0

    monkeypatch.setattr(svm, "fit_exact", exact)
    points = correlated(2100, 2, dtype=torch.float64)
    assert svm.choose_components(points, 0.5, 0.5, 0.995, 0) == (64, 1.0)  # what does not vary has no order to miss
    svm.choose_components(points[:300], 0.5, 0.5, 0.995, 0)
    assert sizes == [2000, 300]
