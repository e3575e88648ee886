"""fDBD: the distance of the features to the decision boundaries."""

from __future__ import annotations

import torch
from torch import Tensor

from calibrant import InputError
from calibrant.detectors.base import Detector
from calibrant.detectors.last_layer import last_layer
from calibrant.slots import register


@register("detector", "fdbd")
class FDBDScore(Detector):
    """-1 / (C - 1) sum_{c != y} (l_y - l_c) / (||w_y - w_c|| ||z - mu||), y being the predicted class.

    Liu and Qin, "Fast Decision Boundary based Out-of-Distribution Detector", ICML 2024. For features z and logits
    l_c = w_c z + b_c, the term (l_y - l_c) / ||w_y - w_c|| is the distance of z to the boundary between the classes y
    and c; outliers lie nearer to the boundaries, in relation to their distance from the mean mu of the training
    features. The w_c are recovered from the training features and logits (`last_layer`), so that the features must be
    the inputs of the last layer as they are.
    """

    label = "fDBD"
    center: Tensor
    gaps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("gaps", torch.empty(0, 0))

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Recover the last layer, and keep ||w_y - w_c||, (C, C), and mu, (D,)."""
        assert features is not None
        assert logits is not None
        if logits.shape[1] < 2:
            raise InputError("logits of one class have no decision boundary; use another detector")
        weight, _ = last_layer(features, logits)
        gaps = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
        self.gaps = gaps.masked_fill(gaps == 0, torch.inf).to(features)  # y itself and equal classes have no boundary
        self.center = features.cpu().double().mean(0).to(features)

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The negative mean distance to the boundaries over that to the mean."""
        assert features is not None
        assert logits is not None
        top, predicted = logits.max(1, keepdim=True)
        distances = ((top - logits) / self.gaps[predicted[:, 0]]).sum(1) / (logits.shape[1] - 1)
        size = (features - self.center).norm(dim=1)
        score: Tensor = -distances / size.clamp(min=torch.finfo(size.dtype).tiny)
        return score
