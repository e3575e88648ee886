"""The detectors of other papers against pytorch-ood 0.4.0 and against their formulas by brute force in float64.

The numbers of `REFERENCE` were made by pytorch-ood on the data of `example`, in float32: `ViM(None, d=3, w=W, b=b)`,
`fDBD(None, head)`, `GEN(None, gamma=0.1, M=3)` times 3 (it takes the mean of the three terms), `KNN(None, k=5)`, and,
of the raw features, `Mahalanobis(None)` times 2 N and `RMD(None)` times N (it does not divide by N = 60).
"""

import math

import numpy as np
import pytest
import torch

from calibrant.detectors import (
    FDBDScore,
    GENScore,
    KNNScore,
    MahalanobisScore,
    MaxLogitPNormScore,
    RelativeMahalanobisScore,
    ViMScore,
)
from calibrant.detectors.last_layer import last_layer

REFERENCE = {
    "vim": [5.691622, -7.218315, -1.259817, 2.812505],
    "fdbd": [-0.112247, -0.435947, -0.793332, -0.111461],
    "gen": [2.507513, 2.055842, 2.339423, 2.523874],
    "knn": [0.341661, 0.469074, 0.702938, 0.335884],
    "mahalanobis": [26.278515, 49.328979, 6.01348, 12.828934],
    "relative_mahalanobis": [-1.141636, 16.215101, 1.703319, 2.41785],
}


def drawn(seed, count):
    normal = np.random.default_rng(seed).standard_normal((count, 6)) @ np.diag([3, 2, 1, 0.5, 0.3, 0.1])
    return torch.from_numpy(normal + np.array([1, 0, 0, 0.5, 0, 0.2])).float()


def example(dtype=torch.float32):
    """Features, logits and labels of 60 training examples, and features and logits of four queries."""
    rng = np.random.default_rng(1)
    weight = torch.from_numpy(rng.standard_normal((4, 6))).to(dtype)
    bias = torch.from_numpy(rng.standard_normal(4)).to(dtype)
    features, queries = drawn(2, 60).to(dtype), drawn(3, 4).to(dtype) * 1.5
    logits = features @ weight.T + bias
    return features, logits, logits.argmax(1), queries, queries @ weight.T + bias, weight, bias


@pytest.mark.parametrize(
    "detector",
    [
        ("vim", ViMScore(dim=3)),
        ("fdbd", FDBDScore()),
        ("gen", GENScore(top=3)),
        ("knn", KNNScore(k=5)),
        ("mahalanobis", MahalanobisScore(normalize=False, shrinkage=0)),
        ("relative_mahalanobis", RelativeMahalanobisScore(normalize=False, shrinkage=0)),
    ],
    ids=lambda pair: pair[0],
)
def test_pytorch_ood_gives_the_same(detector):
    name, score = detector
    features, logits, labels, queries, query_logits, *_ = example()
    found = score.fit(features, logits, labels).score(queries, query_logits)
    torch.testing.assert_close(found, torch.tensor(REFERENCE[name]), atol=2e-4, rtol=2e-4)


def normalized(value):
    return value / np.linalg.norm(value, axis=1, keepdims=True)


@pytest.mark.parametrize("normalize", [True, False])
def test_mahalanobis_by_its_formula(normalize):
    features, _, labels, queries, *_ = example(torch.float64)
    z, q = (normalized(v.numpy()) if normalize else v.numpy() for v in (features, queries))
    means = {c: z[labels == c].mean(0) for c in range(4)}
    residual = np.stack([row - means[int(c)] for row, c in zip(z, labels)])
    shared, whole = residual.T @ residual / 60, np.cov(z.T, bias=True)
    options = {"normalize": normalize, "shrinkage": 0.2}

    def distance(point, mean, covariance):
        shrunk = 0.8 * covariance + 0.2 * np.trace(covariance) / 6 * np.eye(6)
        return (point - mean) @ np.linalg.inv(shrunk) @ (point - mean)

    nearest = [min(distance(point, means[c], shared) for c in range(4)) for point in q]
    background = [distance(point, z.mean(0), whole) for point in q]
    for kind, expected in (
        (MahalanobisScore, nearest),
        (RelativeMahalanobisScore, np.subtract(nearest, background)),
    ):
        found = kind(**options).fit(features, labels=labels).score(queries)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_shrinkage_is_that_of_ledoit_and_wolf_and_makes_singular_covariances_usable():
    from sklearn.covariance import ledoit_wolf

    features = drawn(5, 30).double()
    labels = torch.zeros(30, dtype=torch.long)
    covariance, _ = ledoit_wolf(features.numpy() - features.numpy().mean(0), assume_centered=True)
    offset = (features[:3] - features.mean(0)).numpy()
    expected = (offset @ np.linalg.inv(covariance) * offset).sum(1)
    found = MahalanobisScore(normalize=False).fit(features, labels=labels).score(features[:3])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    few = torch.cat([drawn(6, 4), torch.zeros(4, 2)], 1)
    for kind in (MahalanobisScore, RelativeMahalanobisScore):
        scores = kind().fit(few, labels=torch.tensor([0, 0, 3, 3])).score(few + 0.5)
        assert bool(scores.isfinite().all())


def test_vim_by_its_formula():
    features, logits, _, queries, query_logits, weight, bias = example(torch.float64)
    w, b, z, q = (value.numpy() for value in (weight, bias, features, queries))
    origin = -np.linalg.pinv(w) @ b
    values, vectors = np.linalg.eig((z - origin).T @ (z - origin) / 60)
    residual = vectors[:, np.argsort(-values)[2:]]
    alpha = logits.numpy().max(1).mean() / np.linalg.norm((z - origin) @ residual, axis=1).mean()
    expected = alpha * np.linalg.norm((q - origin) @ residual, axis=1) - query_logits.logsumexp(1).numpy()
    found = ViMScore(dim=2).fit(features, logits).score(queries, query_logits)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_vim_ignores_directions_that_are_always_empty():
    features, logits, *_ = example()
    dead = torch.cat([features, torch.zeros(60, 6)], 1)
    score = ViMScore(dim=6).fit(dead, logits)
    assert float(score.alpha) == 0
    torch.testing.assert_close(score.score(dead, logits), -logits.logsumexp(1))


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e6])
def test_vim_does_not_depend_on_the_unit_of_the_features(unit):
    """The last layer takes the unit back, and alpha makes the virtual logit as large as the others."""
    features, logits, _, queries, query_logits, *_ = example(torch.float64)
    plain = ViMScore(dim=3).fit(features, logits).score(queries, query_logits)
    other = ViMScore(dim=3).fit(features * unit, logits).score(queries * unit, query_logits)
    torch.testing.assert_close(other, plain, rtol=1e-6, atol=1e-6)


def test_fdbd_by_its_formula():
    features, logits, _, queries, query_logits, weight, _ = example(torch.float64)
    expected = []
    for point, values in zip(queries, query_logits):
        top = int(values.argmax())
        away = [
            abs(float(values[top] - values[c])) / float((weight[top] - weight[c]).norm()) for c in range(4) if c != top
        ]
        expected.append(-np.mean(away) / float((point - features.mean(0)).norm()))
    found = FDBDScore().fit(features, logits).score(queries, query_logits)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_gen_by_its_formula_for_one_network_and_for_members():
    logits = torch.randn(3, 20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    for members in (logits[:1], logits):
        p = members.softmax(-1).mean(0).numpy()
        largest = np.sort(p, axis=1)[:, ::-1][:, :4]
        expected = (largest**0.3 * (1 - largest) ** 0.3).sum(1)
        np.testing.assert_allclose(GENScore(gamma=0.3, top=4).score(logits=members), expected, rtol=1e-9)


def test_gen_tells_certain_predictions_apart_where_the_confidence_is_one():
    logits = torch.tensor([[20.0, 0.0, 0.0], [30.0, 0.0, 0.0]])
    assert logits.softmax(-1).amax(-1).tolist() == [1, 1]
    scores = GENScore().score(logits=logits)
    assert scores[0] > scores[1] > 0


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, 8.0])
def test_max_logit_pnorm_by_its_formula(p):
    logits = torch.randn(2, 20, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    centered = logits.numpy() - logits.numpy().mean(-1, keepdims=True)
    expected = -(centered.max(-1) / (np.abs(centered) ** p).sum(-1) ** (1 / p)).mean(0)
    np.testing.assert_allclose(MaxLogitPNormScore(p=p).score(logits=logits), expected, rtol=1e-9)
    scores = MaxLogitPNormScore(p=p).score(logits=torch.stack([logits[0].float() * 1e12, logits[0].float()]))
    assert bool(scores.isfinite().all())
    assert MaxLogitPNormScore(p=p).score(logits=torch.full((1, 3), 2.0)).tolist() == [0]


def test_knn_depends_on_directions_only():
    features, *_ = example()
    score = KNNScore(k=3).fit(features)
    queries = drawn(8, 10)
    torch.testing.assert_close(score.score(queries), score.score(queries * 7), atol=1e-5, rtol=1e-5)
    z, q = normalized(features.double().numpy()), normalized(queries.double().numpy())
    expected = np.sort(np.linalg.norm(q[:, None] - z[None], axis=2), axis=1)[:, 2]
    np.testing.assert_allclose(score.score(queries), expected, atol=1e-5)


def test_the_last_layer_is_recovered():
    features, logits, *_, weight, bias = example()
    for found, expected in zip(last_layer(features, logits), (weight, bias)):
        torch.testing.assert_close(found, expected.double(), atol=1e-4, rtol=1e-4)


def test_two_examples_more_than_inputs_determine_the_last_layer():
    features = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    weight, bias = torch.tensor([[2.0, -1.0], [0.5, 3.0]]), torch.tensor([1.0, -4.0])
    for found, expected in zip(last_layer(features, features @ weight.T + bias), (weight, bias)):
        torch.testing.assert_close(found, expected.double())
    with pytest.raises(
        ValueError, match="3 training examples cannot determine a last layer of 2 inputs; give at least 4"
    ):
        last_layer(features[:3], features[:3])


def test_a_head_that_is_not_linear_is_refused():
    features, logits, *_ = example()
    for detector in (ViMScore(), FDBDScore()):
        with pytest.raises(ValueError, match=r"logits are not linear in the features: least squares leave \d+\.\d% of"):
            detector.fit(features, logits.tanh())
        with pytest.raises(ValueError, match="7 training examples cannot determine a last layer of 6 inputs"):
            detector.fit(features[:7], logits[:7])
        detector.fit(features, logits.bfloat16().float())  # rounded, but linear
        assert math.isfinite(float(detector.score(features, logits).sum()))


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (GENScore, {"gamma": 0.0}),
        (GENScore, {"gamma": 1.0}),
        (GENScore, {"top": 0}),
        (MaxLogitPNormScore, {"p": 0.0}),
        (KNNScore, {"k": 0}),
        (MahalanobisScore, {"shrinkage": 1.5}),
        (ViMScore, {"dim": 0}),
    ],
)
def test_bad_options_are_refused(kind, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        kind(**bad)


def test_vim_needs_room_for_a_residual():
    features, logits, *_ = example()
    with pytest.raises(ValueError, match="dim must be below the number of features, 6, not 6"):
        ViMScore(dim=6).fit(features, logits)
