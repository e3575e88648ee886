"""Inputs that users give by mistake, or in a form that is usual elsewhere, to the estimator and the predictor."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from calibrant import CalibratedClassifier, Ensemble, Predictor, Trust
from calibrant.calibrators import TemperatureScaling
from calibrant.predictions import Predictions

LABELS = np.arange(60) % 3


def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)


def small_cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def test_images_with_the_channels_last_are_taken_by_fit_and_by_predict() -> None:
    """NumPy's usual order; the second dimension is then no number of features."""
    given = images()
    classifier = CalibratedClassifier(small_cnn(), epochs=1, rule="confidence").fit(given, LABELS)
    np.testing.assert_array_equal(classifier.predict(given), classifier.predict(given.transpose(0, 3, 1, 2)))
    assert classifier.n_features_in_ == 3
    with pytest.raises(ValueError, match=r"X has inputs of shape \(3, 6, 8\), but the classifier was fitted on"):
        classifier.predict(given[:, :6])


def test_tensors_with_the_channels_last_are_refused_with_the_remedy() -> None:
    given = torch.from_numpy(images()).float()
    network = small_cnn().train()
    with pytest.raises(ValueError, match=r"shape \(8, 8, 3\).*X\.permute\(0, 3, 1, 2\) puts the channels first"):
        CalibratedClassifier(network, epochs=1).fit(given, LABELS)
    assert network.training


def test_images_of_different_sizes_are_refused() -> None:
    given = [Image.fromarray(one).resize((8 + place % 2, 8)) for place, one in enumerate(images())]
    with pytest.raises(ValueError, match=r"different shapes, such as \(3, 8, 8\) and \(3, 8, 9\)"):
        CalibratedClassifier(small_cnn(), epochs=1).fit(given, LABELS)


def test_inputs_of_another_width_are_refused() -> None:
    network = nn.Linear(6, 3)
    with pytest.raises(ValueError, match=r"X has inputs of shape \(5,\), which the network does not take \(mat1"):
        CalibratedClassifier(network, epochs=1).fit(torch.randn(60, 5), LABELS)
    with pytest.raises(ValueError, match=r"x has inputs of shape \(2,\), which the network does not take \(mat1"):
        Predictor(Ensemble.of(network), threshold=0.5)(torch.randn(4, 2))


def test_other_errors_of_the_network_stay_as_they_are() -> None:
    class Broken(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("the sensor is not calibrated")

    with pytest.raises(RuntimeError, match="the sensor is not calibrated"):
        Predictor(Ensemble.of(Broken(6, 3)), threshold=0.5)(torch.randn(4, 6))


def test_a_class_in_place_of_a_network_is_refused() -> None:
    with pytest.raises(ValueError, match=r"module must be a network.*make one first, Linear\(\.\.\.\)"):
        CalibratedClassifier(nn.Linear, epochs=1).fit(torch.randn(60, 5), LABELS)


def test_a_tensor_in_place_of_a_loader_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a list with one batch, \[x\]"):
        Ensemble.of(nn.Linear(6, 3)).predict(torch.randn(4, 6))


def test_a_calibrator_without_labels_or_with_probabilities_says_so() -> None:
    logits = torch.randn(60, 3)
    with pytest.raises(ValueError, match="labels are missing"):
        TemperatureScaling().fit(logits, None)
    with pytest.warns(UserWarning, match="the logits are probabilities.*softmax layer"):
        TemperatureScaling().fit(logits.softmax(-1), LABELS)


def test_trust_without_outlier_scores_is_refused() -> None:
    said = Predictions.from_logits(torch.randn(60, 3), labels=torch.from_numpy(LABELS))
    with pytest.raises(ValueError, match="validation has no outlier scores"):
        Trust().fit(said, said)
