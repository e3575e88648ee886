"""The estimator on tables, images and tokens, binary and many-class, in scikit-learn's company."""

import copy
import tempfile

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from calibrant import InputError
from calibrant.backbones import MLP
from calibrant.deploy.estimator import CalibratedClassifier
from calibrant.selective import SIRC, ConfidenceSelector, Selector, Trust


@pytest.fixture(scope="module")
def table():
    X, y = make_classification(400, 8, n_informative=6, n_classes=3, class_sep=2.0, random_state=0)
    return X.astype(np.float32), y


def mlp(inputs=8, classes=3):
    torch.manual_seed(0)
    return MLP(inputs, classes, hidden=[16])


def fast(module, scheme="FNN", **settings):
    return CalibratedClassifier(module, scheme, **{"epochs": 8, "members": 3, "device": "cpu", **settings})


class Transformer(nn.Module):
    """Two layers over tokens; the classes are read off the mean over positions."""

    def __init__(self, vocabulary, classes, width=16):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)).mean(1))


@pytest.mark.parametrize("scheme", ["FNN", "CFNN-OCM", "CBNN-OCM", "SCBNN-OCM"])
def test_an_mlp_on_a_table(table, scheme):
    X, y = table
    outliers = np.random.default_rng(0).uniform(-12, 12, (200, 8)).astype(np.float32)
    classifier = fast(mlp(), scheme, epochs=15).fit(X, y, uncertainty=outliers)
    probabilities = classifier.predict_proba(X)
    assert classifier.score(X, y) > 0.9
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert classifier.n_features_in_ == 8
    assert len(classifier.history_[scheme.removeprefix("S").removesuffix("-OCM")]) == 15
    if scheme.endswith("OCM"):
        plain = fast(mlp(), scheme.removeprefix("S").removesuffix("-OCM"), epochs=15).fit(X, y)
        assert classifier.predict_proba(outliers).max(1).mean() < plain.predict_proba(outliers).max(1).mean()
    if scheme.startswith("S"):
        assert classifier.accept(X, coverage=0.5).mean() == pytest.approx(0.5, abs=0.15)
        assert classifier.accept(X, coverage=1.0).all()
    decision = classifier.predictor_(torch.from_numpy(X))
    assert np.allclose(decision.probabilities.numpy(), probabilities, atol=1e-5)
    if scheme.startswith("S"):
        assert np.array_equal(decision.accepted.numpy(), classifier.accept(X))


class Saturated(nn.Module):
    """Logarithms of probabilities as logits: minus infinity where a probability is 0."""

    def __init__(self):
        super().__init__()
        self.layers = mlp()

    def forward(self, x):
        return self.layers(x).softmax(-1).log()


@pytest.mark.parametrize("entropy", ["true", "false"])
def test_infinite_logits_are_decided_on(table, entropy):
    X, y = table
    overrides = (f"selector.entropy={entropy}", "outliers.scores=[neighbors, lof]", "selector.steps=50")
    classifier = fast(Saturated(), "SFNN", overrides=overrides).fit(X, y)
    far = np.concatenate([X[:5], X[:1] * 1e4])
    assert np.isinf(classifier.predictor_.ensemble(torch.from_numpy(far)).detach().numpy()).any()
    decision = classifier.predictor_(torch.from_numpy(far))
    assert np.array_equal(classifier.accept(far), decision.accepted.numpy())


@pytest.mark.parametrize("scheme", ["CBNN-OCM", "FNN"])
def test_a_transformer_on_token_sequences(scheme):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 20, (400, 12), generator=generator)
    labels = (tokens < 6).sum(1).gt(3).long()
    torch.manual_seed(0)
    settings = {"epochs": 20, "rate": 0.01, "overrides": ("fit.optimizer=adam", "finetune.rate=0.001")}
    classifier = fast(Transformer(20, 2), scheme, **settings)
    classifier.fit(tokens, labels, uncertainty=torch.full((50, 12), 19))
    assert classifier.score(tokens, labels) > 0.9


def test_images_and_a_thousand_classes():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (300, 3, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 1000, (300,), generator=generator)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1000))
    classifier = fast(module, "CBNN", epochs=2).fit(images, labels)
    assert classifier.predict_proba(images[:5]).shape == (5, 1000)
    assert len(classifier.classes_) == 1000


def test_labels_of_any_type_come_back(table):
    X, y = table
    names = np.array(["ant", "bee", "cat"])[y]
    classifier = fast(mlp()).fit(X, names)
    assert list(classifier.classes_) == ["ant", "bee", "cat"]
    assert (classifier.predict(X) == names).mean() > 0.8
    shifted = fast(mlp()).fit(X, y + 5)
    assert list(shifted.classes_) == [5, 6, 7]
    assert np.array_equal(shifted.predict(X) - 5, fast(mlp()).fit(X, y).predict(X))
    binary = fast(mlp(classes=2)).fit(X, y > 0)
    assert binary.predict(X).dtype == bool


def test_all_forms_of_data_give_the_same_model(table):
    X, y = table
    tensors = (torch.from_numpy(X), torch.from_numpy(y))
    forms = [
        (X, y),
        ((X, y), None),
        tensors,
        (TensorDataset(*tensors), None),
        (DataLoader(TensorDataset(*tensors), batch_size=7, shuffle=True), None),
        (
            DataLoader(
                TensorDataset(*tensors), batch_size=7, collate_fn=lambda items: tuple(map(torch.stack, zip(*items)))
            ),
            None,
        ),
    ]
    expected = None
    for first, second in forms:
        found = fast(mlp(), "BNN", epochs=2).fit(first, second, validation=(X[:50], y[:50])).predict_proba(X)
        expected = found if expected is None else expected
        assert np.array_equal(found, expected)


class Noisy(Dataset):
    """A data set with a random transform: it must not be frozen."""

    classes = ("a", "b", "c")

    def __init__(self, X, y):
        self.X, self.y, self.read = torch.from_numpy(X), y, 0

    def __len__(self):
        return len(self.X)

    def __getitem__(self, index):
        self.read += 1
        return self.X[index] + 0.01 * torch.randn(8), int(self.y[index])


def test_a_random_data_set_is_read_anew_every_epoch(table):
    data = Noisy(*table)
    classifier = fast(mlp(), epochs=3).fit(data)
    assert data.read > 3 * 300
    assert list(classifier.classes_) == ["a", "b", "c"]
    assert (classifier.predict(table[0]) == np.array(["a", "b", "c"])[table[1]]).mean() > 0.7


def test_the_module_is_the_start_and_stays_as_it_was(table):
    X, y = table
    module = mlp()
    before = copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    first, second = fast(module, "BNN", epochs=2).fit(X, y), fast(module, "BNN", epochs=2).fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))
    other = fast(module, "BNN", epochs=2, seed=1).fit(X, y)
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))


def test_clone_grid_search_and_pipelines(table):
    X, y = table
    classifier = fast(mlp(), epochs=3)
    copied = clone(classifier)
    assert copied.module is not classifier.module
    assert copied.get_params()["epochs"] == 3
    search = GridSearchCV(classifier, {"rate": [1e-5, 0.1], "scheme": ["FNN"]}, cv=2).fit(X, y)
    assert search.best_params_["rate"] == 0.1
    assert search.predict(X).shape == (400,)
    pipeline = make_pipeline(StandardScaler(), fast(mlp(), epochs=5)).fit(X.astype(np.float64), y)
    assert pipeline.score(X, y) > 0.8


def test_a_run_directory_is_kept_and_used_again(table, tmp_path, monkeypatch):
    X, y = table
    first = fast(mlp(), "CBNN", epochs=2, out=tmp_path).fit(X, y).predict_proba(X)
    monkeypatch.setattr("calibrant.training.workspace.train_stage", None)
    assert np.array_equal(fast(mlp(), "CBNN", epochs=2, out=tmp_path).fit(X, y).predict_proba(X), first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "CBNN-OMC"}, "did you mean CBNN-OCM"),
        ({"scheme": "CBNN-OCM"}, "uncertainty is missing: CBNN-OCM needs"),
        ({"epochs": -1}, r"fit\.epochs cannot be -1"),
        ({"rate": -1.0}, r"fit\.rate cannot be -1"),
        ({"overrides": ("fit.rat=1",)}, r"did you mean fit\.rate"),
    ],
)
def test_wrong_hyperparameters(table, arguments, message):
    with pytest.raises(ValueError, match=message):
        fast(mlp(), **arguments).fit(*table)


def test_wrong_data(table):
    X, y = table
    with pytest.raises(ValueError, match="module has 2 outputs, but y holds 3 classes"):
        fast(mlp(classes=2)).fit(X, y)
    with pytest.raises(ValueError, match="y is missing"):
        fast(mlp()).fit(X)
    with pytest.raises(ValueError, match="one class label per row"):
        fast(mlp()).fit(X, np.eye(3)[y])
    with pytest.raises(ValueError, match="not among the 3 known classes"):
        fast(mlp()).fit(X, y + 5, validation=(X, y))
    with pytest.raises(ValueError, match="validation must hold labels"):
        fast(mlp()).fit(X, y, validation=X)
    with pytest.raises(ValueError, match="uncertainty has inputs of shape"):
        fast(mlp(), "FNN-OCM").fit(X, y, uncertainty=X[:, :3])
    fitted = fast(mlp(), epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="X has 3 features, but CalibratedClassifier is expecting 8"):
        fitted.predict(X[:, :3])
    with pytest.raises(ValueError, match=r"X has inputs of shape \(3,\)"):
        fitted.predict(torch.from_numpy(X[:, :3]))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        fast(mlp()).fit(np.full((10, 8), np.nan), y[:10])
    with pytest.raises(ValueError, match="X holds NaN"):
        fast(mlp()).fit(torch.full((10, 8), torch.nan), y[:10])


def test_a_scheme_without_a_selector_accepts_by_its_confidence(table):
    X, y = table
    classifier = fast(mlp(), "FNN").fit(X, y)
    assert classifier.accept(X).all()
    half, confidence = classifier.accept(X, coverage=0.5), classifier.predict_proba(X).max(1)
    assert half.mean() == pytest.approx(0.5, abs=0.15)
    assert confidence[half].min() >= confidence[~half].max()
    assert classifier.accept(X).all()  # a coverage holds for one call


def test_training_writes_nothing_but_where_it_is_told_to(table, tmp_path, monkeypatch):
    X, y = table
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = fast(mlp(), "SCBNN", epochs=2, out=tmp_path / "run").fit(X, y)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    passed_on = fast(mlp(), "SCBNN", epochs=2).fit(X, y)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert np.array_equal(kept.predict_proba(X), passed_on.predict_proba(X))
    assert np.array_equal(kept.accept(X), passed_on.accept(X))
    assert kept.history_ == passed_on.history_


def test_a_device_may_be_a_torch_device(table):
    X, y = table
    named = fast(mlp(), "FNN", epochs=1, device="cpu").fit(X, y)
    given = fast(mlp(), "FNN", epochs=1, device=torch.device("cpu")).fit(X, y)
    assert np.array_equal(named.predict_proba(X), given.predict_proba(X))


def default(module, **settings):
    return CalibratedClassifier(module, **{"epochs": 8, "device": "cpu", **settings})


def test_by_default_trust_decides_and_no_outliers_are_needed(table):
    X, y = table
    classifier = default(mlp(), epochs=15).fit(X, y)
    trust, confidence = classifier.trust(X), classifier.predict_proba(X).max(1)
    assert isinstance(classifier.predictor_.selector, Trust)
    assert ((trust >= 0) & (trust <= confidence + 1e-6)).all()
    assert np.array_equal(classifier.accept(X), trust >= np.float32(0.9))
    for error in (0.05, 0.4):
        assert np.array_equal(classifier.accept(X, error=error), trust >= np.float32(1 - error))
    assert classifier.accept(X, coverage=0.5).mean() == pytest.approx(0.5, abs=0.25)  # of 40 validation examples
    decision = classifier.decide(X[:7])
    assert np.array_equal(decision.trust.numpy(), trust[:7])
    assert np.array_equal(decision.confidence.numpy(), confidence[:7])
    with pytest.raises(ValueError, match="give either coverage or error, not both"):
        classifier.accept(X, coverage=0.5, error=0.1)
    far = np.random.default_rng(0).uniform(-30, 30, (200, 8)).astype(np.float32)
    known = default(mlp(), epochs=15).fit(X, y, uncertainty=far[:100])
    assert known.accept(far[100:]).mean() < known.predict_proba(far[100:]).max(1).__ge__(0.9).mean()


@pytest.mark.parametrize("rows", [20, 50])
def test_with_little_data_the_confidence_decides_and_one_sentence_says_so(table, rows):
    X, y = table[0][:rows], table[1][:rows]
    with pytest.warns(UserWarning, match="validation examples are too few to fit trust to: about 20") as told:
        classifier = default(mlp(), epochs=2).fit(X, y)
    assert len(told) == 1
    assert classifier.accept(X).all()
    assert not classifier.accept(X, coverage=0.1).all()
    assert classifier.decide(X).trust is None
    with pytest.raises(ValueError, match="this classifier has no trust"):
        classifier.trust(X)


def test_two_hundred_rows_are_enough(table):
    X, y = table[0][:200], table[1][:200]
    assert default(mlp(), epochs=2).fit(X, y).trust(X).shape == (200,)


def images_and_labels(count=240):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)
    labels = torch.arange(count) % 2
    images[labels == 1, :, :4] //= 4
    return images, labels


def tokens_and_labels():
    tokens = torch.randint(0, 20, (240, 12), generator=torch.Generator().manual_seed(0))
    return tokens, (tokens < 6).sum(1).gt(3).long()


@pytest.mark.parametrize(
    ("module", "data", "scores"),
    [
        (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), images_and_labels, ("knn", "energy", "gen")),
        (lambda: nn.Sequential(nn.Conv2d(1, 2, 8), nn.Flatten()), images_and_labels, ("energy", "gen")),
        (lambda: Transformer(20, 2), tokens_and_labels, ("knn", "energy", "gen")),
    ],
    ids=["images", "no linear layer", "tokens"],
)
def test_the_default_on_images_tokens_and_without_a_linear_layer(module, data, scores):
    X, y = data()
    torch.manual_seed(0)
    classifier = default(module(), epochs=2, rate=0.01).fit(X, y)
    assert classifier.predictor_.outliers.scores == scores
    trust = classifier.trust(X)
    assert ((trust >= 0) & (trust <= 1)).all()
    assert classifier.accept(X, error=1.0).all()


def test_a_class_may_be_missing_from_the_validation_data(table):
    X, y = table
    some = y[:150] != 2
    classifier = default(mlp(), epochs=5).fit(X[150:], y[150:], validation=(X[:150][some], y[:150][some]))
    assert list(classifier.classes_) == [0, 1, 2]
    assert classifier.trust(X).shape == (400,)


def test_without_epochs_a_trained_network_keeps_its_weights(table):
    X, y = table
    trained = default(mlp(), epochs=10).fit(X, y)
    network = trained.predictor_.ensemble.network(0)
    kept = default(network, epochs=0, overrides=("data.normalize=false",)).fit(X, y)
    found = kept.predictor_.ensemble.network(0).state_dict()
    assert all(torch.equal(value, found[f"module.{name}"]) for name, value in network.state_dict().items())
    assert np.array_equal(kept.predict(X), trained.predict(X))
    assert kept.trust(X).shape == (400,)


def test_the_default_in_the_company_of_scikit_learn(table):
    X, y = table
    search = GridSearchCV(default(mlp(), epochs=3), {"rate": [1e-5, 0.1]}, cv=2).fit(X, y)
    assert search.best_params_ == {"rate": 0.1}
    assert search.best_estimator_.trust(X).shape == (400,)
    assert clone(search.best_estimator_).rule is None


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"rule": "sirc"}, SIRC),
        ({"rule": "confidence"}, ConfidenceSelector),
        ({"scheme": "FNN"}, ConfidenceSelector),
        ({"scheme": "FNN", "rule": "trust"}, Trust),
        ({"scheme": "SFNN", "rule": "trust", "overrides": ("selector.steps=20",)}, Selector),
    ],
)
def test_the_rule_is_the_one_asked_for(table, settings, kind):
    classifier = default(mlp(), **{"epochs": 2, **settings}).fit(*table)
    assert type(classifier.predictor_.selector) is kind
    assert (classifier.decide(table[0][:3]).trust is None) == (kind is not Trust)


def test_a_trained_network_is_left_as_it_is_and_sees_its_inputs_as_they_are():
    generator = torch.Generator().manual_seed(0)
    X = 3 + 2 * torch.randn(300, 4, generator=generator)
    y = (X[:, 0] > 3).long()
    trained = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    fitted = CalibratedClassifier(trained, epochs=0, device="cpu").fit(X, y)
    temperature = fitted.predictor_.calibrator.temperature_
    expected = (trained(X) / temperature).softmax(-1).detach().numpy()
    np.testing.assert_allclose(fitted.predict_proba(X), expected, atol=1e-5)


@pytest.mark.parametrize(("scheme", "dtype"), [("FNN", "float64"), ("BNN", "float64"), ("FNN", "float16")])
def test_a_network_in_another_precision_is_refused_in_one_sentence(table, scheme, dtype):
    X, y = table
    with pytest.raises(
        InputError, match=f"parameters in {dtype} .* inputs in float32, .*; pass module.float()"
    ) as refused:
        fast(mlp().to(getattr(torch, dtype)), scheme).fit(X.astype(np.float64), y)
    assert "\n" not in str(refused.value)
