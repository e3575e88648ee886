"""The estimator: any module and any scheme behind scikit-learn's `fit`, `predict` and `predict_proba`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import Splits
from calibrant.deploy.deploying import predictor_of
from calibrant.deploy.labels import Labelling, learn_labels
from calibrant.predictions import Predictions
from calibrant.training.predicting import InOrder
from calibrant.training.training_data import Examples, TrainingData, as_examples
from calibrant.training.workspace import Workspace

# What differs from the defaults, which are the paper's: a schedule for short trainings, nothing done to the inputs.
_BASE = Settings().changed(
    {
        "fit": {"schedule": "one-cycle"},
        "augmentation": {"padding": 0, "flip": False},
        "posterior": {"init_std": 0.01},
        "finetune": {"examples_per_epoch": None, "rate": 0.01},
        "outliers": {"max_points": 5000},
        "selector": {"group": 32},
    }
)


class CalibratedClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of any of the sixteen schemes around `module`.

    Args:
        module: returns logits (B, C) for a batch of inputs. Its weights are the start of every `fit`, which trains a
            copy: fitting twice gives the same result, and `module` itself never changes. Inputs are normalized inside
            the model, but for tokens.
        scheme: such as "FNN", "CBNN-OCM" or "SCBNN"; those with OCM need `uncertainty` in `fit`.
        epochs, batch_size, rate: of the fit; fine-tuning takes a fifth of the epochs.
        calibration_weight: lambda.
        gamma: weight of confidence minimization.
        posterior: the family of q(theta) for Bayesian schemes, such as "mean_field" or "mc_dropout".
        members: size of the ensemble that predicts, for Bayesian schemes.
        calibrator: what is fitted to the validation data after training, "temperature" or "none".
        overrides: any other setting, such as `("fit.optimizer=adam", "posterior.init_std=0.02")`.
        seed: the one seed.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        out: a run directory to keep and resume the training in; None keeps nothing.

    Learned: `classes_`, `n_features_in_`, `settings_`, `history_` (the metrics of every stage, one row per epoch), and
    `predictor_`, the whole as one module to deploy: `predictor_(x)` decides, `predictor_.save(folder)` keeps it.

    >>> import torch
    >>> X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> classifier = CalibratedClassifier(nn.Linear(2, 2), "FNN", epochs=5).fit(X, X[:, 0] > 0)
    >>> classifier.classes_, bool(classifier.score(X, X[:, 0] > 0) > 0.9)
    (array([False,  True]), True)
    """

    def __init__(
        self,
        module: nn.Module,
        scheme: str = "CBNN-OCM",
        *,
        epochs: int = 20,
        batch_size: int = 64,
        rate: float = 0.1,
        calibration_weight: float = 0.5,
        gamma: float = 0.5,
        posterior: str = "mean_field",
        members: int = 20,
        calibrator: str = "none",
        overrides: Sequence[str] = (),
        seed: int = 0,
        device: str = "auto",
        out: str | Path | None = None,
    ) -> None:
        self.module = module
        self.scheme = scheme
        self.epochs = epochs
        self.batch_size = batch_size
        self.rate = rate
        self.calibration_weight = calibration_weight
        self.gamma = gamma
        self.posterior = posterior
        self.members = members
        self.calibrator = calibrator
        self.overrides = overrides
        self.seed = seed
        self.device = device
        self.out = out

    def fit(self, X: Any, y: Any = None, *, validation: Any = 0.1, uncertainty: Any = None) -> CalibratedClassifier:
        """Train.

        Args:
            X: inputs with `y`; or a pair (X, y), a data set or a loader, which hold their own labels.
            y: class labels, of any type.
            validation: a fraction of X to hold out, or data in any of the forms of X with its labels.
            uncertainty: D_u, unlabelled outliers in any of the forms of X; needed by OCM schemes.
        """
        scheme, settings = Scheme.parse(self.scheme), self._settings()
        if scheme.ocm and uncertainty is None:
            raise ValueError(f"uncertainty is missing: {scheme} needs unlabelled outliers to fine-tune on")
        train, labelling = learn_labels(X, y, self.module)
        data = _split(train, validation, labelling, uncertainty, settings.seed)
        workspace = Workspace(data, settings, self.out, network=copy.deepcopy(self.module))
        names = [str(name) for name in labelling.classes]
        selection = workspace.selection(scheme)
        self.predictor_ = predictor_of(workspace, scheme, selection, names).to(workspace.fabric.device)
        self.history_ = {str(link): workspace.history(link) for link in scheme.chain if not link.selective}
        self.settings_, self.classes_ = settings, labelling.classes
        self.input_shape_ = tuple(train.take(torch.tensor([0]))[0].shape[1:])
        self.n_features_in_ = self.input_shape_[0]
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Calibrated probabilities (N, C) of the ensemble, in the order of `classes_`."""
        probabilities: NDArray[Any] = self._predictions(X).probabilities.numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every input, (N,)."""
        labels: NDArray[Any] = self.classes_[self._predictions(X).predicted.numpy()]
        return labels

    def _predictions(self, X: Any) -> Predictions:
        """Of the calibrated ensemble, not of the predictor: nobody asks for its scores."""
        data = self._checked(X)
        predictions = self.predictor_.ensemble.predict(InOrder(data, self.settings_.engine.predict_batch_size))
        calibrator = self.predictor_.calibrator
        return predictions if calibrator is None else calibrator.calibrate(predictions)

    def accept(self, X: Any, coverage: float | None = None) -> NDArray[Any]:
        """Whether to answer, (N,) bool: a selective scheme's selector decides, for any other one the confidence.

        Args:
            X: inputs.
            coverage: accept this part of the validation data; None takes the setting `selector.coverage` for selective
                schemes, and accepts everything for the others.
        """
        data = self._checked(X)
        predictor = self.predictor_ if coverage is None else self.predictor_.at_coverage(coverage)
        decision = predictor.predict(InOrder(data, self.settings_.engine.predict_batch_size))
        accepted: NDArray[Any] = decision.accepted.numpy()
        return accepted

    def _checked(self, X: Any) -> Examples:
        check_is_fitted(self, "predictor_")
        data = as_examples(X)
        shape = tuple(data.take(torch.tensor([0]))[0].shape[1:])
        if shape != self.input_shape_:
            raise ValueError(f"X has inputs of shape {shape}, but the classifier was fitted on {self.input_shape_}")
        return data

    def _settings(self) -> Settings:
        own = {
            "fit": {"epochs": self.epochs, "batch_size": self.batch_size, "rate": self.rate},
            "finetune": {"epochs": max(1, int(self.epochs) // 5), "gamma": self.gamma},
            "calibration": {"weight": self.calibration_weight},
            "posterior": {"family": self.posterior, "members": self.members},
            "calibrator": {"name": self.calibrator},
            "seed": self.seed,
            "engine": {"device": str(self.device)},
        }
        return _BASE.changed(own).with_(*self.overrides)


def _split(train: Examples, validation: Any, labelling: Labelling, uncertainty: Any, seed: int) -> TrainingData:
    outliers = None if uncertainty is None else as_examples(uncertainty)
    if not isinstance(validation, float):
        return TrainingData(train, labelling.encode(validation), uncertainty=outliers)
    labels = getattr(train, "labels", None)
    splits = Splits.draw(len(train), {"validation": validation, "train": None}, seed, labels)
    parts = splits.apply(train)
    return TrainingData(parts["train"], parts["validation"], uncertainty=outliers, splits={"train": splits})
