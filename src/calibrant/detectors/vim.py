"""ViM: the energy, and what of the features lies outside their principal subspace as one more logit."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.detectors.base import Detector
from calibrant.detectors.last_layer import last_layer
from calibrant.slots import register


@register("detector", "vim")
class ViMScore(Detector):
    """alpha ||R^T (z - o)|| - log sum_c exp(l_c), for features z and logits l = W z + b.

    Wang, Li, Feng and Zhang, "ViM: Out-of-Distribution with Virtual-logit Matching", CVPR 2022. The origin is
    o = -W^+ b, at which all logits are as near to 0 as they can be; R spans the directions around o outside the `dim`
    principal ones of the training features; and alpha makes the mean virtual logit of the training data equal to their
    mean largest logit. By default `dim` is, as the authors choose it, 1000 for 2048 or more features, 512 for 768 or
    more, and half of them else. W and b are recovered from the training features and logits (`last_layer`), so that
    the features must be the inputs of the last layer as they are. alpha is 0 where no training feature leaves the
    principal subspace.
    """

    label = "ViM"
    center: Tensor
    residual: Tensor
    alpha: Tensor

    def __init__(self, *, dim: int | None = None) -> None:
        super().__init__()
        self.dim = None if dim is None else int(checks.positive("dim", dim))
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("residual", torch.empty(0, 0))
        self.register_buffer("alpha", torch.tensor(math.nan))

    def fit_member(self, features: Tensor | None, logits: Tensor | None, labels: Tensor | None) -> None:
        """Recover the last layer, then find the residual directions and alpha."""
        assert features is not None
        assert logits is not None
        weight, bias = last_layer(features, logits)
        origin = -torch.linalg.pinv(weight) @ bias
        moved = features.cpu().double() - origin
        size = moved.shape[1]
        dim = principal_dimension(size) if self.dim is None else self.dim
        if dim >= size:
            raise InputError(f"dim must be below the number of features, {size}, not {dim}")
        _, basis = torch.linalg.eigh(moved.T @ moved / len(moved))  # the smallest eigenvalues come first
        residual = basis[:, : size - dim].contiguous()
        lengths = (moved @ residual).norm(dim=1).mean()
        visible = lengths > 1e-6 * moved.norm(dim=1).mean()
        alpha = torch.where(visible, logits.cpu().double().amax(1).mean() / lengths, torch.zeros_like(lengths))
        self.center, self.residual, self.alpha = (value.to(features) for value in (origin, residual, alpha))

    def score_member(self, features: Tensor | None, logits: Tensor | None) -> Tensor:
        """The virtual logit less the log of the sum of the others' exponentials."""
        assert features is not None
        assert logits is not None
        virtual = self.alpha * ((features - self.center) @ self.residual).norm(dim=1)
        score: Tensor = virtual - logits.logsumexp(1)
        return score

    def config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"dim": self.dim}


def principal_dimension(size: int) -> int:
    """The authors' dimension of the principal subspace of `size` features.

    >>> [principal_dimension(size) for size in (2048, 768, 64)]
    [1000, 512, 32]
    """
    return 1000 if size >= 2048 else 512 if size >= 768 else size // 2
