"""A table with categories, few of one class, and a search for the network: which customers will leave?

    python examples/churn_table.py

The customers are drawn here, so that the probability that each of them leaves is known, and the predicted one can be
compared with it.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import balanced_accuracy_score, recall_score
from sklearn.model_selection import GridSearchCV

from calibrant import CalibratedClassifier, load
from calibrant.deploy.frame_encoder import FrameEncoder


def draw_customers(count: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Customers, whether they left, and the probability of that; about one in sixteen leaves."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "plan": rng.choice(["basic", "family", "business"], count, p=[0.6, 0.3, 0.1]),
            "region": rng.choice(["north", "east", "south", "west"], count),
            "months": rng.exponential(24, count).round(),
            "monthly": rng.normal(40, 12, count).clip(10).round(2),
            "calls": rng.poisson(1.2, count),
        }
    )
    plan = frame["plan"].map({"basic": 0.4, "family": -0.6, "business": -1.5})
    moved = (frame["region"] == "east") & (frame["calls"] > 2)
    score = -3.1 + plan + 1.6 * moved + 0.5 * frame["calls"] - 0.03 * frame["months"] + 0.03 * (frame["monthly"] - 40)
    probability = 1 / (1 + np.exp(-score.to_numpy()))
    return frame, np.where(rng.random(count) < probability, "leaves", "stays"), probability


def report(name: str, classifier: CalibratedClassifier, X: pd.DataFrame, y: np.ndarray, truth: np.ndarray) -> None:
    """One line: recall of those who leave, balanced accuracy, and the predicted against the true probability."""
    predicted, probability = classifier.predict(X), classifier.predict_proba(X)[:, 0]  # classes_: leaves, stays
    recall = recall_score(y, predicted, pos_label="leaves")
    balanced, off = balanced_accuracy_score(y, predicted), np.abs(probability - truth).mean()
    print(f"{name:22} recall {100 * recall:5.1f} %   balanced accuracy {100 * balanced:.1f} %", end="   ")
    print(f"mean p {100 * probability.mean():.1f} % (true {100 * truth.mean():.1f} %), off by {100 * off:.1f}")


def main(short: bool = False) -> None:
    """Search, compare with class weights, save and load."""
    X, y, _ = draw_customers(1500 if short else 6000, seed=0)
    X_new, y_new, truth = draw_customers(1000 if short else 4000, seed=1)

    # The search tries networks by name; each is built for the encoded columns. The score is a proper one.
    grid = {"module": ["mlp-16"] if short else ["mlp-16", "mlp-64-64"], "rate": [0.01, 0.1]}
    search = GridSearchCV(CalibratedClassifier(epochs=5 if short else 15), grid, scoring="neg_log_loss", cv=2)
    search.fit(X, y)
    plain = search.best_estimator_
    print(f"{len(X)} customers, {100 * np.mean(y == 'leaves'):.1f} % left; chosen: {search.best_params_}")
    print(f"columns: {', '.join(plain.encoder_.names)}")

    report("plain", plain, X_new, y_new, truth)
    # Class weights find more of those who leave, and their probabilities are too high by design.
    weighted = CalibratedClassifier(epochs=plain.epochs, **search.best_params_, class_weight="balanced").fit(X, y)
    report("class_weight=balanced", weighted, X_new, y_new, truth)
    # Calibrated probabilities can be acted on instead: call everybody who leaves with more than 10 %.
    called = plain.predict_proba(X_new)[:, 0] > 0.1
    print(
        f"{'plain, p > 10 %':22} recall {100 * called[y_new == 'leaves'].mean():5.1f} %"
        f"   of {100 * called.mean():.1f} % who are called, {100 * truth[called].mean():.1f} % would leave"
    )

    # What the model has never seen is trusted less: a new plan, and a price beyond all others.
    strange = X_new.assign(plan="student", monthly=900.0)
    print(
        f"mean trust: {plain.trust(X_new).mean():.2f} as in training, {plain.trust(strange).mean():.2f} on strange ones"
    )

    with tempfile.TemporaryDirectory() as folder:
        plain.save(f"{folder}/churn")  # tensors and JSON, no pickle
        predictor, encoder = load(f"{folder}/churn"), FrameEncoder.load(f"{folder}/churn")
        decision = predictor(torch.from_numpy(encoder(X_new)))
    print(f"loaded again: {100 * decision.coverage:.1f} % of the answers are accepted")


if __name__ == "__main__":
    main(short="--short" in sys.argv)
