"""The estimator as scikit-learn's users know estimators: its own checks, weights, frames, sparse input, searches."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from calibrant import CalibratedClassifier, load
from calibrant.deploy.frame_encoder import FrameEncoder
from calibrant.losses.objective import Objective

NOT_FOR_US = {
    "check_sample_weight_equivalence_on_dense_data": (
        "minibatches, and the examples that are held out for calibration, are drawn by row: a row of weight 2 is one"
        " row, and two rows are two"
    ),
    "check_sample_weight_equivalence_on_sparse_data": "as on dense data",
}
"""The checks of scikit-learn that do not apply, and why; docs/estimator.md has the same list."""


@pytest.mark.filterwarnings("ignore")  # most of the checks have too few rows to fit trust to
@parametrize_with_checks(
    [CalibratedClassifier(epochs=10, device="cpu")], expected_failed_checks=lambda estimator: NOT_FOR_US
)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_docs_name_the_checks_that_do_not_apply() -> None:
    page = (Path(__file__).parents[2] / "docs" / "estimator.md").read_text()
    assert set(re.findall(r"`(check_\w+)`", page)) == set(NOT_FOR_US)


def quick(module: Any = None, **settings: Any) -> CalibratedClassifier:
    return CalibratedClassifier(module, **{"epochs": 8, "device": "cpu", **settings})


@pytest.fixture(scope="module")
def table() -> tuple[Any, Any]:
    X, y = make_classification(400, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, random_state=0)
    return X.astype(np.float32), y


@pytest.fixture(scope="module")
def frame() -> tuple[pd.DataFrame, Any]:
    """The class is the plan, but for those older than 60, who are always of class `no`."""
    rng = np.random.default_rng(0)
    plan, age = rng.choice(["free", "paid", "trial"], 400), rng.integers(18, 80, 400)
    X = pd.DataFrame({"age": age, "plan": plan, "member": rng.random(400) < 0.5, "score": rng.normal(size=400)})
    return X, np.where((plan == "paid") & (age <= 60), "yes", "no")


def test_the_first_thing_one_types_works(table: tuple[Any, Any]) -> None:
    X, y = table
    assert CalibratedClassifier(nn.Linear(6, 3), epochs=2).fit(X, y).predict(X).shape == (400,)
    assert quick("mlp-16").fit(X, y).score(X, y) > 0.8
    assert quick().fit(X.astype(int), y).predict_proba(X.astype(int)).shape == (400, 3)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "accept", "trust", "decide", "save"])
def test_before_fit_every_method_says_that_it_is_not_fitted(method: str) -> None:
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        getattr(CalibratedClassifier(), method)("folder" if method == "save" else np.zeros((2, 3)))


def test_a_network_is_built_by_name_and_saved_by_it(table: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = table
    fitted = quick("mlp-8-8", seed=3).fit(X, y + 1)
    fitted.save(tmp_path / "p")
    kept = load(tmp_path / "p")  # no module is needed
    assert np.allclose(kept(torch.from_numpy(X)).probabilities.numpy(), fitted.predict_proba(X), atol=1e-6)
    assert kept.classes == ("1", "2", "3")
    again = quick("mlp-8-8", seed=3).fit(X, y + 1)
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(ValueError, match="did you mean mlp"):
        quick("mpl-8").fit(X, y)
    with pytest.raises(ValueError, match="module must be given for tokens"):
        quick().fit(torch.zeros(50, 4, dtype=torch.int64), np.arange(50) % 2)
    with pytest.raises(ValueError, match="y holds one class"):
        quick().fit(X, np.zeros(400, int))
    images = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8)
    with pytest.warns(UserWarning, match="too few"):
        assert quick(epochs=1).fit(images, np.arange(60) % 2).settings_.backbone.name == "cnn-32"


def test_weights_in_the_loss_against_a_sum_by_hand() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.5, 0.25], [-1.0, 1.0]])
    labels, weights = torch.tensor([0, 1, 0]), torch.tensor([0.5, 2.0, 0.0])
    by_hand = sum(
        w * -np.log(np.exp(z[y]) / np.exp(z).sum()) for w, z, y in zip(weights.numpy(), logits.numpy(), labels.numpy())
    )
    found = Objective(10)(logits, labels, weights=weights)["cross_entropy"]
    assert float(found) == pytest.approx(by_hand / 3, rel=1e-6)
    ones = Objective(10)(logits, labels, weights=torch.ones(3))["cross_entropy"]
    assert float(ones) == pytest.approx(float(Objective(10)(logits, labels)["cross_entropy"]), rel=1e-6)


def test_examples_of_weight_zero_teach_nothing(table: tuple[Any, Any]) -> None:
    X, y = table
    rng = np.random.default_rng(0)
    wrong = rng.random(400) < 0.45
    spoiled = np.where(wrong, (y + 1 + (X[:, 0] > 0)) % 3, y)
    held_out = (X[:100], y[:100])
    plain = quick("mlp-8").fit(X, spoiled, validation=held_out).score(X, y)
    weighted = quick("mlp-8").fit(X, spoiled, sample_weight=1.0 - wrong, validation=held_out).score(X, y)
    clean = quick("mlp-8").fit(X[~wrong], y[~wrong], validation=held_out).score(X, y)
    assert weighted > plain + 0.01
    assert weighted == pytest.approx(clean, abs=0.05)


@pytest.mark.parametrize("overrides", [(), ("calibration.share=0.25",)])
def test_only_the_proportions_of_weights_count_and_equal_ones_change_nothing(
    table: tuple[Any, Any], overrides: tuple[str, ...]
) -> None:
    X, y = table

    def fitted(weight: Any) -> Any:
        classifier = quick("mlp-8", scheme="CFNN", epochs=2, overrides=overrides)
        return classifier.fit(X, y, sample_weight=weight).predict_proba(X)

    weights = np.linspace(0, 3, 400)
    assert np.allclose(fitted(np.full(400, 7.0)), fitted(None), atol=1e-5)
    assert np.allclose(fitted(weights), fitted(10 * weights), atol=1e-4)
    assert not np.allclose(fitted(weights), fitted(None), atol=1e-2)


def test_class_weights_raise_the_recall_of_a_rare_class_and_are_those_of_scikit_learn() -> None:
    X, y = make_classification(800, 4, n_redundant=0, weights=[0.95], class_sep=0.5, flip_y=0, random_state=0)
    y = np.array(["no", "yes"])[y]

    def recall(**settings: Any) -> float:
        predicted = quick("mlp-8", **settings).fit(X, y).predict(X)
        return float((predicted[y == "yes"] == "yes").mean())

    assert recall(class_weight="balanced") > recall() + 0.2
    weight = {"no": 1.0, "yes": 19.0}
    by_class = quick("mlp-8", class_weight=weight).fit(X, y).predict_proba(X)
    by_sample = quick("mlp-8").fit(X, y, sample_weight=[weight[one] for one in y]).predict_proba(X)
    assert np.allclose(by_class, by_sample, atol=1e-6)


def test_weights_count_in_the_key_of_a_kept_run(table: tuple[Any, Any], tmp_path: Path) -> None:
    X, y = table
    plain = quick("mlp-4", epochs=2, out=tmp_path).fit(X, y).predict_proba(X)
    weighted = quick("mlp-4", epochs=2, out=tmp_path, class_weight={0: 9, 1: 1, 2: 1}).fit(X, y).predict_proba(X)
    assert not np.allclose(plain, weighted, atol=1e-3)
    assert np.array_equal(quick("mlp-4", epochs=2, out=tmp_path).fit(X, y).predict_proba(X), plain)


def test_temperature_and_trust_are_fitted_without_weights(table: tuple[Any, Any]) -> None:
    """With a trained network, which weights leave as it is, everything else is the same too."""
    X, y = table
    trained = quick("mlp-8").fit(X, y).predictor_.ensemble.network(0)
    plain = quick(trained, epochs=0).fit(X, y)
    weighted = quick(trained, epochs=0, class_weight="balanced").fit(X, y, sample_weight=np.linspace(0, 1, 400))
    assert np.array_equal(plain.trust(X), weighted.trust(X))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(3), "sample_weight.shape"),
        (np.full(400, -1.0), "Negative values"),
        (np.zeros(400), "sample_weight is 0 for all|[Ss]ample weights"),
        (np.full(400, np.nan), "contains NaN"),
    ],
)
def test_wrong_weights(table: tuple[Any, Any], weight: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(*table, sample_weight=weight)


def test_weights_that_would_do_nothing_are_refused(table: tuple[Any, Any]) -> None:
    X, y = (torch.from_numpy(one) for one in table)
    with pytest.raises(ValueError, match="need X and y as arrays"):
        quick(nn.Linear(6, 3)).fit(torch.utils.data.TensorDataset(X, y), sample_weight=np.ones(400))
    replaced = ("calibration.regularizer=focal", "calibration.replaces_cross_entropy=true")
    with pytest.raises(ValueError, match="weights are of the cross-entropy"):
        quick(scheme="CFNN", class_weight="balanced", overrides=replaced).fit(*table)


def test_frames_with_categories(frame: tuple[pd.DataFrame, Any], tmp_path: Path) -> None:
    X, y = frame
    fitted = quick("mlp-16", epochs=20).fit(X, y)
    assert list(fitted.feature_names_in_) == ["age", "plan", "member", "score"]
    assert fitted.n_features_in_ == 4
    assert fitted.encoder_.names == ("age", "plan=free", "plan=paid", "plan=trial", "member", "score")
    assert fitted.score(X, y) > 0.9
    categorical = X.assign(plan=X["plan"].astype("category"), age=X["age"].astype("Int64"))
    assert np.array_equal(fitted.predict_proba(categorical), fitted.predict_proba(X))
    unknown = X.assign(plan="never seen")
    assert fitted.predict_proba(unknown).shape == (400, 2)
    fitted.save(tmp_path / "p")
    predictor, encoder = load(tmp_path / "p"), FrameEncoder.load(tmp_path / "p")
    found = predictor(torch.from_numpy(encoder(X))).probabilities.numpy()
    assert np.allclose(found, fitted.predict_proba(X), atol=1e-6)
    assert not list(tmp_path.rglob("*.pkl"))
    fitted.save(tmp_path / "p")  # replaces the one there


def test_one_hot_columns_are_those_of_scikit_learn(frame: tuple[pd.DataFrame, Any]) -> None:
    from sklearn.preprocessing import OneHotEncoder

    plans = frame[0][["plan"]]
    theirs = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(plans)
    asked = pd.DataFrame({"plan": ["paid", "new", "free"]})
    assert np.array_equal(FrameEncoder.learn(plans)(asked), theirs.transform(asked))


def test_missing_categories_are_a_value_where_training_had_some() -> None:
    encoder = FrameEncoder.learn(pd.DataFrame({"plan": ["a", None, "b"]}))
    assert encoder.names == ("plan=(missing)", "plan=a", "plan=b")
    assert encoder(pd.DataFrame({"plan": [np.nan, "b"]})).tolist() == [[1, 0, 0], [0, 0, 1]]


def test_columns_must_be_those_of_fit_in_their_order(frame: tuple[pd.DataFrame, Any]) -> None:
    X, y = frame
    numbers = X[["age", "score"]]
    for data, fitted in ((X, quick(epochs=1).fit(X, y)), (numbers, quick(epochs=1).fit(numbers, y))):
        with pytest.raises(ValueError, match="The feature names should match those that were passed during fit"):
            fitted.predict(data[list(data.columns[::-1])])
        with pytest.raises(ValueError, match="Feature names seen at fit time, yet now missing"):
            fitted.predict(data.drop(columns="score"))
        with pytest.raises(ValueError, match="The feature names should match"):
            fitted.accept(data.rename(columns={"score": "points"}))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert np.array_equal(fitted.predict(numbers.to_numpy()), fitted.predict(numbers))
    with pytest.raises(ValueError, match="X must be a frame with the columns age, plan"):
        quick(epochs=1).fit(X, y).predict(X.to_numpy())
    with pytest.raises(ValueError, match="uncertainty must have the columns age, plan"):
        quick(epochs=1).fit(X, y, uncertainty=numbers)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pd.date_range("2024-01-01", periods=400), "column 'odd' of datetime64.*neither numbers nor a category"),
        ([["a"]] * 400, "column 'odd' of list"),
        (["a", 1] * 200, "column 'odd' that mixes text and numbers"),
        ([f"name {i}" for i in range(400)], "column 'odd' with 400 different values in 400 rows"),
        ([1.0] * 399 + [np.nan], "NaN or infinity in row 399 of the column 'odd'"),
        (np.ones(400) * 1j, "column 'odd' of complex128|Complex data not supported"),
    ],
)
def test_a_column_that_cannot_be_used_is_named(frame: tuple[pd.DataFrame, Any], column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick().fit(frame[0].assign(odd=column), frame[1])


def test_text_where_numbers_were_is_named(frame: tuple[pd.DataFrame, Any]) -> None:
    fitted = quick(epochs=1).fit(*frame)
    with pytest.raises(ValueError, match="text in the column 'age', which held numbers"):
        fitted.predict(frame[0].assign(age="young"))


@pytest.mark.parametrize("content", ["", "[]", '{"format": "x"}', '{"format": "calibrant.columns", "columns": [[1]]}'])
def test_damaged_columns_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "columns.json").write_text(content)
    with pytest.raises(ValueError, match="does not hold the columns of a frame"):
        FrameEncoder.load(tmp_path)


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_array, sp.dok_array])
def test_sparse_input_is_what_the_dense_one_is(table: tuple[Any, Any], kind: Any) -> None:
    X, y = table
    X = np.where(np.abs(X) < 1, 0, X)
    dense, sparse = quick(epochs=1).fit(X, y), quick(epochs=1).fit(kind(X), y)
    assert np.array_equal(sparse.predict_proba(kind(X)), dense.predict_proba(X))


def test_sparse_input_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"X is sparse and would take 373 GiB.*TruncatedSVD"):
        quick().fit(sp.csr_matrix((1000, 10**8)), np.arange(1000) % 2)


@pytest.mark.parametrize("scheme", [None, "FNN", "CFNN", "BNN", "FNN-OCM", "SFNN"])
def test_accept_works_for_every_scheme(table: tuple[Any, Any], scheme: str | None) -> None:
    X, y = table
    settings = {"members": 2, "overrides": ("selector.steps=20",)}
    classifier = quick("mlp-8", scheme=scheme, epochs=2, **settings).fit(X, y, uncertainty=X[:50] * 10)
    assert classifier.accept(X).shape == (400,)
    assert 0 < classifier.accept(X, coverage=0.5).mean() < 1


def test_searches_pipelines_and_cross_validation(frame: tuple[pd.DataFrame, Any], table: tuple[Any, Any]) -> None:
    X, y = frame
    search = GridSearchCV(quick(epochs=15), {"module": ["mlp-4", "mlp-32"], "rate": [1e-6, 0.1]}, cv=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fold has too few rows for trust
        search.fit(X, y)
        scores = cross_val_score(quick(), X, y, cv=2, scoring="neg_log_loss", params={"sample_weight": np.ones(400)})
    assert search.best_params_["rate"] == 0.1
    assert list(search.best_estimator_.feature_names_in_) == list(X.columns)
    assert (scores < 0).all()
    pipeline = make_pipeline(StandardScaler(), quick("mlp-8")).fit(*table)
    assert pipeline.score(*table) == pytest.approx(pipeline.score(*table, sample_weight=np.ones(400)))
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()
