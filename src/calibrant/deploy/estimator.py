"""The estimator: any network and any scheme behind scikit-learn's `fit`, `predict` and `predict_proba`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.compiled import usable
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.data import ArrayData, Splits
from calibrant.deploy.deploying import predictor_of
from calibrant.deploy.estimator_inputs import loss_weights, scaled, take_in
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
    """A classifier around a network that says which of its answers to trust, or one of the paper's sixteen schemes.

    By default the network is trained plainly, a temperature makes its confidence match its accuracy, and `trust`, the
    probability that an answer is right in a stream with outliers, decides what to accept. The outliers that trust is
    fitted to are those given as `uncertainty`, or made from the validation inputs.

    Args:
        module: returns logits (B, C) for a batch of inputs, or one logit per example, which is read as two classes;
            other forms of inputs and outputs are in `adapters.unpacking` and `adapters.outputs`. Its weights are the
            start of every `fit`, which trains a copy: fitting twice gives the same result, and `module` itself never
            changes. Inputs are normalized inside the model, but for tokens, and unless `epochs` is 0. Or the name of a
            backbone, such as "mlp-128-128", which is built for the inputs and classes of `fit`; None takes "mlp-64-64"
            for tables and "cnn-32" for images.
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
        class_weight: weights of the classes in the cross-entropy, used as `sample_weight` in `fit`: a dictionary by
            label, or "balanced", N / (C N_c) for class c with N_c of the N examples.
        overrides: any other setting, such as `("fit.optimizer=adam", "posterior.init_std=0.02")`.
        seed: the one seed.
        device: "auto", "cpu", "cuda", "cuda:1", "mps".
        out: a run directory to keep and resume the training in; None keeps nothing.

    Learned: `classes_`, `n_features_in_`, `feature_names_in_` and `encoder_` (of a frame), `settings_`, `history_` (the
    metrics of every stage, one row per epoch), and `predictor_`, the whole as one module to deploy: `predictor_(x)`
    decides, `save(folder)` keeps it.

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
        module: nn.Module | str | None = None,
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
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.class_weight = class_weight
        self.overrides = overrides
        self.seed = seed
        self.device = device
        self.out = out

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, validation: Any = 0.1, uncertainty: Any = None
    ) -> CalibratedClassifier:
        """Train.

        Args:
            X: inputs with `y`; or a pair (X, y), a data set or a loader, which hold their own labels. The columns of a
                frame that hold text or categories are encoded, one column per value; sparse matrices are made dense.
            y: class labels, of any type.
            sample_weight: (N,), the weights w_i of the examples in the cross-entropy, (1 / B) sum_i w_i CE_i, scaled to
                the mean 1. Everything that is fitted to the validation data, temperature, trust and thresholds, is
                fitted without weights, so that confidence and trust are about inputs as they come.
            validation: a fraction of X to hold out, or data in any of the forms of X with its labels.
            uncertainty: D_u, unlabeled outliers in any of the forms of X, which trust is fitted to; needed by OCM
                schemes. About twenty are enough for trust.
        """
        scheme = Scheme.parse(self.scheme or "FNN")
        if scheme.ocm and uncertainty is None:
            raise InputError(f"uncertainty is missing: {scheme} needs unlabeled outliers to fine-tune on")
        if y is None and isinstance(X, tuple) and len(X) == 2:
            X, y = X
        network = self.module if isinstance(self.module, nn.Module) else None
        settings = self._settings()  # refuses wrong hyperparameters before anything is read
        train, labeling = learn_labels(take_in(self, X, reset=True), y, network)
        settings = settings if network is not None else settings.with_(f"backbone.name={self._backbone(train)}")
        weights = self._weights(sample_weight, y, train, labeling, settings)
        outliers = None if uncertainty is None else as_examples(take_in(self, uncertainty, "uncertainty"))
        held_out = (
            validation if isinstance(validation, float) else labeling.encode(take_in(self, validation, "validation"))
        )
        data = _split(train, held_out, outliers, weights, settings.seed)
        check_schemes([scheme], data, settings)
        own = None if network is None else copy.deepcopy(usable(network))
        workspace = Workspace(data, settings, self.out, network=own)
        selection = workspace.selection(scheme)
        names = [str(name) for name in labeling.classes]
        self.predictor_ = predictor_of(workspace, scheme, selection, names).to(workspace.fabric.device)
        self.history_ = {str(link): workspace.history(link) for link in scheme.chain if not link.selective}
        self.settings_, self.classes_ = settings, labeling.classes
        self.input_shape_ = input_shape(train)
        by_name = isinstance(self.input_shape_, dict)
        if self.encoder_ is None:
            self.n_features_in_ = len(self.input_shape_) if by_name else self.input_shape_[0]
        return self

    def _backbone(self, train: Examples) -> str:
        """The name of the network for a table or images."""
        if not isinstance(self.module, (str, type(None))):
            made = f": make one first, {self.module.__name__}(...)" * isinstance(self.module, type)
            raise InputError(f"module must be a network, the name of one, or None, not {self.module!r}{made}")
        inputs = train.take(torch.tensor([0]))[0]
        if inputs.dtype == torch.int64:
            raise InputError("module must be given for tokens: a network that embeds them")
        return str(self.module or ("cnn-32" if inputs.dim() == 4 else "mlp-64-64"))

    def _weights(
        self, sample_weight: Any, y: Any, train: Examples, labeling: Labeling, settings: Settings
    ) -> Tensor | None:
        """The weights of the examples in X, as they are given."""
        if sample_weight is None and self.class_weight is None:
            return None
        if settings.calibration.replaces_cross_entropy:
            raise InputError("weights are of the cross-entropy, which calibration.replaces_cross_entropy leaves out")
        labels = getattr(train, "labels", None)
        if labels is None or (y is None and sample_weight is not None):
            raise InputError("sample_weight and class_weight need X and y as arrays, tensors or frames")
        return loss_weights(sample_weight, self.class_weight, labeling.classes[labels.numpy()])

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Calibrated probabilities (N, C) of the ensemble, in the order of `classes_`."""
        probabilities: NDArray[Any] = self._predictions(X).probabilities.numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every input, (N,)."""
        index = self._predictions(X).predicted.numpy()
        labels: NDArray[Any] = self.classes_[index]
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
            raise InputError("this classifier has no trust: its rule is another one; leave scheme and rule at None")
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
            raise InputError("give either coverage or error, not both")
        if coverage is not None:
            predictor = predictor.at_coverage(coverage)
        elif error is not None:
            predictor = predictor.at_error(error)
        return predictor.predict(InOrder(data, self.settings_.engine.predict_batch_size))

    def save(self, folder: str | Path) -> Path:
        """Write the predictor to `folder`, and the columns of the frame that it was fitted on, if it was, beside it.

        `calibrant.load(folder)` gives the predictor back, and `FrameEncoder.load(folder)` makes its inputs of a frame.
        """
        check_is_fitted(self, "predictor_")
        target = self.predictor_.save(folder)
        if self.encoder_ is not None:
            self.encoder_.save(target)
        return target

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may give it."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.categorical = tags.input_tags.string = True
        tags.input_tags.three_d_array = True
        return tags

    def _checked(self, X: Any) -> Examples:
        check_is_fitted(self, "predictor_")
        data = as_examples(take_in(self, X))
        shape = input_shape(data)
        if shape != self.input_shape_:
            raise InputError(f"X has inputs of shape {shape}, but the classifier was fitted on {self.input_shape_}")
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


def _split(
    train: Examples, validation: float | Examples, outliers: Examples | None, weights: Tensor | None, seed: int
) -> TrainingData:
    if not isinstance(validation, float):
        own = None if weights is None else scaled(weights)
        return TrainingData(train, validation, uncertainty=outliers, weights=own)
    labels = getattr(train, "labels", None)
    splits = Splits.draw(len(train), {"validation": validation, "train": None}, seed, labels)
    parts = splits.apply(train)
    own = None if weights is None else scaled(splits.apply(ArrayData(weights[:, None]))["train"].inputs[:, 0])
    return TrainingData(
        parts["train"], parts["validation"], uncertainty=outliers, splits={"train": splits}, weights=own
    )
