r"""A regularizer, a detector and a posterior of your own, in one module.

    python examples/own_plugin.py
    cd examples && calibrant train --plugin own_plugin --scheme CBNN -o posterior.family=noisy_head \
        -o calibration.regularizer=squared_gap -o outliers.scores='[distance_from_center]' --out run

Whatever is registered has a name in the settings, in `calibrant info slots --plugin own_plugin` and in every table.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import Tensor, nn

import calibrant
from calibrant.data import open_source
from calibrant.detectors import OutlierScore
from calibrant.posteriors.base import Posterior
from calibrant.posteriors.ensemble import Ensemble


@calibrant.register("regularizer", "squared_gap")
class SquaredGap(nn.Module):
    """(mean confidence - accuracy)^2 of a batch: zero where the batch is calibrated as a whole."""

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Logits (B, C) and labels (B,) to a scalar; the gradient flows through the confidence."""
        confidence, predicted = logits.softmax(-1).max(-1)
        return (confidence.mean() - (predicted == labels).float().mean()).square()


@calibrant.register("detector", "distance_from_center")
class DistanceFromCenter(OutlierScore):
    """The distance of the features from the center of the training features, of order p."""

    label = "distance from center"

    def __init__(self, *, p: float = 1.0, **settings: Any) -> None:
        super().__init__(**settings)
        self.p = p

    def fit_points(self, points: Tensor) -> None:
        """Nothing to fit: the points come standardized."""

    def score_points(self, points: Tensor) -> Tensor:
        """Points (N, D) to scores (N,), larger for outliers."""
        return torch.linalg.vector_norm(points, self.p, dim=-1)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, which are saved with a predictor."""
        return {**super().config(), "p": self.p}


@calibrant.register("posterior", "noisy_head")
class NoisyHead(Posterior):
    """The trained network, with Gaussian noise of a fixed relative size on its last linear layer."""

    def __init__(self, module: nn.Module, std: float = 0.2) -> None:
        super().__init__(module)
        self.std = std

    def sample(self, n: int, seed: int = 0) -> Ensemble:
        """An ensemble of n members."""
        members = [copy.deepcopy(self.module) for _ in range(n)]
        for k, member in enumerate(members):
            generator = torch.Generator().manual_seed(seed + k)
            head = [layer for layer in member.modules() if isinstance(layer, nn.Linear)][-1]
            noise = torch.randn(head.weight.shape, generator=generator).to(head.weight)
            head.weight.data += self.std * head.weight.data.std() * noise
        return Ensemble.stack(members)


def main(short: bool = False) -> None:
    """Use all three by name."""
    digits, outliers = open_source("embedded"), open_source("embedded:ood")
    if short:
        digits, outliers = digits.subset(range(400)), outliers.subset(range(100))
    classifier = calibrant.CalibratedClassifier(
        "cnn-16",
        "SCBNN",
        epochs=2 if short else 10,
        posterior="noisy_head",
        overrides=("calibration.regularizer=squared_gap", "outliers.scores=[distance_from_center]"),
    ).fit(digits)
    test = open_source("embedded", split="test")
    decision = classifier.decide(test.inputs)
    accuracy = (decision.predicted == test.labels).double().mean()
    print(f"accuracy {100 * accuracy:.1f} %, accepted {100 * decision.coverage:.1f} % of the test digits")
    inside, outside = (classifier.decide(x).scores["distance_from_center"] for x in (test.inputs, outliers.inputs))
    above = (outside[:, None] > inside).double().mean()
    print(f"an outlier is farther from the center than a digit in {100 * above:.1f} % of all pairs")


if __name__ == "__main__":
    main(short="--short" in sys.argv)
