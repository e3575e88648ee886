"""The training objective: free energy + lambda E + gamma C, in means over the batch.

    loss = CE + (beta / N) KL(q || p) + lambda E + gamma C

N is the number of training examples, in fitting and in fine-tuning alike. A term whose weight is zero, or whose input
is not there, is not computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from calibrant import InputError, checks
from calibrant.adapters.outputs import logits_of
from calibrant.losses import confidence_minimization
from calibrant.losses.inputs import read_pair

Regularizer = Callable[[Tensor, Tensor], Tensor]


class Objective:
    """The loss of one draw of theta, with its terms by name.

    Args:
        num_data: N, the size of the training set (not of the batch).
        beta: weight of KL(q || p) against the summed cross-entropy of the training set.
        regularizer: `(logits, labels) -> scalar`, the calibration regularizer E.
        calibration_weight: lambda.
        ocm_weight: gamma, the weight of confidence minimization on outliers.
        replaces_cross_entropy: let the regularizer stand in for the cross-entropy, as the focal loss was proposed.

    >>> import torch
    >>> terms = Objective(num_data=100)(torch.zeros(4, 2), torch.tensor([0, 1, 0, 1]), kl=torch.tensor(10.0))
    >>> {name: round(float(value), 4) for name, value in terms.items()}
    {'cross_entropy': 0.6931, 'kl': 10.0, 'loss': 0.6932}
    """

    def __init__(
        self,
        num_data: int,
        *,
        beta: float = 0.00035,
        regularizer: Regularizer | None = None,
        calibration_weight: float = 0.0,
        ocm_weight: float = 0.0,
        replaces_cross_entropy: bool = False,
    ) -> None:
        self.num_data = int(checks.positive("num_data", num_data))
        self.beta = _weight("beta", beta)
        self.calibration_weight = _weight("calibration_weight", calibration_weight)
        self.ocm_weight = _weight("ocm_weight", ocm_weight)
        self.regularizer = regularizer
        self.replaces_cross_entropy = replaces_cross_entropy
        if regularizer is None and (calibration_weight or replaces_cross_entropy):
            raise InputError("calibration_weight is set, but there is no regularizer to weigh")

    def __call__(
        self,
        logits: Any,
        labels: Any,
        *,
        kl: Tensor | None = None,
        outlier_logits: Any = None,
        regularizer_logits: Any = None,
        regularizer_labels: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """The unweighted terms and `"loss"`, their weighted sum.

        Args:
            logits: (B, C) on training inputs, at one draw of theta; or whatever a module returns that holds them. One
                logit per example, (B,) or (B, 1), is read as two classes, and the cross-entropy is that of its sigmoid.
            labels: (B,); of one logit also floating, 0 and 1, (B,) or (B, 1).
            kl: KL(q || p), summed over the parameters; None for a deterministic network.
            outlier_logits: (U, C) on unlabeled outliers.
            regularizer_logits: (R, C) on the disjoint part that the regularizer is evaluated on; `logits` if not given.
            regularizer_labels: (R,).
            weights: (B,), of the examples in the cross-entropy, (1 / B) sum_i w_i CE_i; 1 if not given.
        """
        if (regularizer_logits is None) != (regularizer_labels is None):
            raise InputError("regularizer_logits and regularizer_labels go together")
        if self.ocm_weight and outlier_logits is None:
            raise InputError("outlier_logits are missing: ocm_weight is not 0")
        logits, labels = read_pair(logits, labels)
        if regularizer_logits is not None:
            regularizer_logits, regularizer_labels = read_pair(regularizer_logits, regularizer_labels)
        terms: dict[str, Tensor] = {"cross_entropy": _cross_entropy(logits, labels, weights)}
        loss = terms["cross_entropy"]
        if self.regularizer is not None and (self.calibration_weight or self.replaces_cross_entropy):
            on_logits = logits if regularizer_logits is None else regularizer_logits
            on_labels = labels if regularizer_labels is None else regularizer_labels
            terms["calibration"] = self.regularizer(on_logits, on_labels)
            weighted = self.calibration_weight * terms["calibration"]
            loss = terms["calibration"] if self.replaces_cross_entropy else loss + weighted
        if kl is not None:
            terms["kl"] = kl
            loss = loss + self.beta / self.num_data * kl
        if self.ocm_weight and outlier_logits is not None:
            terms["ocm"] = confidence_minimization(logits_of(outlier_logits))
            loss = loss + self.ocm_weight * terms["ocm"]
        terms["loss"] = loss
        return terms


def _cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    if weights is None:
        return F.cross_entropy(logits, labels)
    return (weights * F.cross_entropy(logits, labels, reduction="none")).mean()


def _weight(name: str, value: float) -> float:
    if not value >= 0 or value == float("inf"):
        raise InputError(f"{name} must be a finite number of at least 0, not {value}")
    return float(value)
