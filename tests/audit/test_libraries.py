"""Tables as scikit-learn, XGBoost and LightGBM users save them; tables/README.md says how the files were written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrant.audit import audit
from calibrant.evaluation import Resampling

TABLES = Path(__file__).parent / "tables"
FAST = Resampling(resamples=20)


def test_xgboost_trains_a_booster_whose_predictions_are_probabilities() -> None:
    """`pd.DataFrame({"y_test": y_test, "y_pred": booster.predict(...)})`."""
    path = TABLES / "xgboost_train.csv"
    with pytest.raises(ValueError, match="if 'y_pred' is the probability of one of two classes, give --score y_pred"):
        audit(path)
    frame = pd.read_csv(path)
    found = audit(path, columns={"score": "y_pred"}, resampling=FAST)
    assert found.rows[0].accuracy.estimate == pytest.approx(((frame.y_pred > 0.5) == frame.y_test).mean())
    margin = audit(TABLES / "xgboost_margin.npz", resampling=FAST)
    assert margin.rows[0].ece.estimate == pytest.approx(found.rows[0].ece.estimate, abs=1e-6)
    assert any("'logit' was read as the log odds of class 1" in sentence for sentence in margin.diagnosis)


def test_lightgbm_trains_a_booster_and_both_columns_are_saved() -> None:
    frame = pd.read_csv(TABLES / "lightgbm_train.csv")
    found = audit(TABLES / "lightgbm_train.csv", resampling=FAST)
    assert found.rows[0].accuracy.estimate == pytest.approx((frame.pred == frame.target).mean())
    assert found.gap.estimate == pytest.approx(
        np.maximum(frame.prob, 1 - frame.prob).mean() - (frame.pred == frame.target).mean()
    )


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [("xgboost_classifier.csv", "y_true", None), ("lightgbm_classifier.parquet", "label", "prediction")],
)
def test_probabilities_under_the_names_of_the_classes(name: str, label: str, said: str | None) -> None:
    path = TABLES / name
    frame = pd.read_csv(path, index_col=0) if path.suffix == ".csv" else pd.read_parquet(path)
    p = frame.drop(columns=[label, *([said] if said else [])])
    right = p.idxmax(axis=1).astype(str) == frame[label].astype(str)
    for source in (path, frame):
        found = audit(source, resampling=FAST)
        assert found.rows[0].accuracy.estimate == pytest.approx(right.mean())
        assert found.gap.estimate == pytest.approx(p.max(axis=1).mean() - right.mean(), abs=1e-6)


def test_scikit_learn_saves_arrays_and_frames(tmp_path: Path) -> None:
    from sklearn.datasets import load_wine
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    X, y = load_wine(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
    model = RandomForestClassifier(10, random_state=0).fit(X_train, y_train)
    accuracy, proba = model.score(X_test, y_test), model.predict_proba(X_test)
    np.savez(tmp_path / "a.npz", y_test=y_test, y_proba=proba)
    np.savez(tmp_path / "b.npz", y_true=y_test, proba=np.asfortranarray(proba), X_test=X_test)
    frame = pd.DataFrame(proba, columns=model.classes_)
    frame["y_test"], frame["y_pred"] = y_test, model.predict(X_test)
    frame.to_csv(tmp_path / "c.csv")
    frame.to_csv(tmp_path / "d.csv", sep=";", decimal=",")
    for source in (tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "c.csv", tmp_path / "d.csv", frame):
        found = audit(source, resampling=FAST)
        assert found.rows[0].accuracy.estimate == pytest.approx(accuracy)
        assert found.gap.estimate == pytest.approx(proba.max(1).mean() - accuracy)
    assert audit.from_estimator(model, X_test, y_test).rows[0].accuracy.estimate == pytest.approx(accuracy)
