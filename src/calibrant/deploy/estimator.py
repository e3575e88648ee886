"""The estimator: any module and any scheme behind scikit-learn's `fit`, `predict` and `predict_proba`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from calibrant.adapters.compiled import usable
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import Splits
from calibrant.deploy.deploying import predictor_of
from calibrant.deploy.labels import Labeling, learn_labels
from calibrant.predictions import Decision, Predictions
from calibrant.training.checking import check_schemes
from calibrant.training.predicting import InOrder
from calibrant.training.training_data import Examples, TrainingData, as_examples, input_shape
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
    """A classifier around `module` that says which of its answers to trust, or one of the paper's sixteen schemes.

    By default the network is trained plainly, a temperature makes its confidence match its accuracy, and `trust`, the
    probability that an answer is right in a stream with outliers, decides what to accept. The outliers that trust is
    fitted to are those given as `uncertainty`, or made from the validation inputs.

    Args:
        module: returns logits (B, C) for a batch of inputs, or one logit per example, which is read as two classes;
            other forms of inputs and outputs are in `adapters.unpacking` and `adapters.outputs`. Its weights are the
            start of every `fit`, which trains a copy: fitting twice gives the same result, and `module` itself never
            changes. Inputs are normalized inside the model, but for tokens, and unless `epochs` is 0.
        scheme: None for the default above, or a scheme of the paper, such as "FNN", "CBNN-OCM" or "SCBNN"; those with
            OCM need `uncertainty` in `fit`.
        epochs, batch_size, rate: of the fit; with 0 epochs a trained network stays as it is. Fine-tuning takes a fifth
            of the epochs.
        calibration_weight: lambda.
        gamma: weight of confidence minimization.
        posterior: the family of q(theta) for Bayesian schemes, such as "mean_field" or "mc_dropout".
        members: size of the ensemble that predicts, for Bayesian schemes.
        calibrator: what is fitted to the validation data after training: "temperature", "vector", "isotonic", "auto",
            which chooses, or "none"; None takes a temperature by default and nothing for a scheme of the paper.
        rule: what accepts answers: "trust", "sirc" or "confidence"; None takes trust by default and the confidence for
            a scheme of the paper. An S-scheme has its selector.
        overrides: any other setting, such as `("fit.optimizer=adam", "posterior.init_std=0.02")`.
        seed: the one seed.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        out: a run directory to keep and resume the training in; None keeps nothing.

    Learned: `classes_`, `n_features_in_`, `settings_`, `history_` (the metrics of every stage, one row per epoch), and
    `predictor_`, the whole as one module to deploy: `predictor_(x)` decides, `predictor_.save(folder)` keeps it.

    >>> import torch
    >>> X = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> classifier = CalibratedClassifier(nn.Linear(2, 2), epochs=5).fit(X, X[:, 0] > 0)
    >>> classifier.classes_, bool(classifier.score(X, X[:, 0] > 0) > 0.9)
    (array([False,  True]), True)
    >>> classifier.trust(X[:3]).shape, classifier.accept(X[:3], error=0.2).dtype
    ((3,), dtype('bool'))
    """

    def __init__(
        self,
        module: nn.Module,
        scheme: str | None = None,
        *,
        epochs: int = 20,
        batch_size: int = 64,
        rate: float = 0.1,
        calibration_weight: float = 0.5,
        gamma: float = 0.5,
        posterior: str = "mean_field",
        members: int = 20,
        calibrator: str | None = None,
        rule: str | None = None,
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
        self.rule = rule
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
            uncertainty: D_u, unlabeled outliers in any of the forms of X, which trust is fitted to; needed by OCM
                schemes. About twenty are enough for trust.
        """
        scheme, settings = Scheme.parse(self.scheme or "FNN"), self._settings()
        if scheme.ocm and uncertainty is None:
            raise ValueError(f"uncertainty is missing: {scheme} needs unlabeled outliers to fine-tune on")
        train, labeling = learn_labels(X, y, self.module)
        data = _split(train, validation, labeling, uncertainty, settings.seed)
        check_schemes([scheme], data, settings)
        workspace = Workspace(data, settings, self.out, network=copy.deepcopy(usable(self.module)))
        names = [str(name) for name in labeling.classes]
        selection = workspace.selection(scheme)
        self.predictor_ = predictor_of(workspace, scheme, selection, names).to(workspace.fabric.device)
        self.history_ = {str(link): workspace.history(link) for link in scheme.chain if not link.selective}
        self.settings_, self.classes_ = settings, labeling.classes
        self.input_shape_ = input_shape(train)
        self.n_features_in_ = len(self.input_shape_) if isinstance(self.input_shape_, dict) else self.input_shape_[0]
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

    def trust(self, X: Any) -> NDArray[Any]:
        """The probability that each answer is right, in a stream with the assumed share of outliers, (N,)."""
        found = self.decide(X).trust
        if found is None:
            raise ValueError("this classifier has no trust: its rule is another one; leave scheme and rule at None")
        values: NDArray[Any] = found.numpy()
        return values

    def accept(self, X: Any, coverage: float | None = None, error: float | None = None) -> NDArray[Any]:
        """Whether to answer, (N,) bool: trust decides, a selective scheme's selector, or the confidence.

        Args:
            X: inputs.
            coverage: accept this part of the validation data; None takes the setting `selector.coverage` for selective
                schemes, `rule.error` for trust, and accepts everything where the confidence decides.
            error: accept where the trust is at least 1 - error.
        """
        accepted: NDArray[Any] = self.decide(X, coverage, error).accepted.numpy()
        return accepted

    def decide(self, X: Any, coverage: float | None = None, error: float | None = None) -> Decision:
        """The answers to X with confidence and trust, and which of them are accepted; arguments as in `accept`."""
        data, predictor = self._checked(X), self.predictor_
        if coverage is not None and error is not None:
            raise ValueError("give either coverage or error, not both")
        if coverage is not None:
            predictor = predictor.at_coverage(coverage)
        elif error is not None:
            predictor = predictor.at_error(error)
        return predictor.predict(InOrder(data, self.settings_.engine.predict_batch_size))

    def _checked(self, X: Any) -> Examples:
        check_is_fitted(self, "predictor_")
        data = as_examples(X)
        shape = input_shape(data)
        if shape != self.input_shape_:
            raise ValueError(f"X has inputs of shape {shape}, but the classifier was fitted on {self.input_shape_}")
        return data

    def _settings(self) -> Settings:
        paper = self.scheme is not None
        calibrator = self.calibrator or ("none" if paper else "temperature")
        own = {
            "data": {"normalize": int(self.epochs) != 0},  # a trained network takes its inputs as they are
            "fit": {"epochs": self.epochs, "batch_size": self.batch_size, "rate": self.rate},
            "finetune": {"epochs": max(1, int(self.epochs) // 5), "gamma": self.gamma},
            "calibration": {"weight": self.calibration_weight},
            "posterior": {"family": self.posterior, "members": self.members},
            "calibrator": {"name": calibrator},
            "rule": {"name": self.rule or ("confidence" if paper else "trust")},
            "seed": self.seed,
            "engine": {"device": str(self.device)},
        }
        return _BASE.changed(own).with_(*self.overrides)


def _split(train: Examples, validation: Any, labeling: Labeling, uncertainty: Any, seed: int) -> TrainingData:
    outliers = None if uncertainty is None else as_examples(uncertainty)
    if not isinstance(validation, float):
        return TrainingData(train, labeling.encode(validation), uncertainty=outliers)
    labels = getattr(train, "labels", None)
    splits = Splits.draw(len(train), {"validation": validation, "train": None}, seed, labels)
    parts = splits.apply(train)
    return TrainingData(parts["train"], parts["validation"], uncertainty=outliers, splits={"train": splits})
