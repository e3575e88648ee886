"""The contract of a calibrator: fit once on held-out labels, then a torch module between the network and the rule.

A calibrator maps the log probabilities of the members' mean to calibrated logits. All that is fitted lives in buffers,
so `state_dict` and `config` together are the whole calibrator, and it is saved and exported with the predictor.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from calibrant import InputError, checks, slots
from calibrant.adapters.fitted import FittedModule
from calibrant.adapters.outputs import as_classes
from calibrant.predictions import Predictions

Own = TypeVar("Own", bound="Calibrator")
NONE = "none"


class Calibrator(FittedModule, ABC):
    """Base of every calibrator; a new one defines `fit_logits` and `forward`, and registers its fitted buffers.

    Of one network z (N, C) are its logits. Of K members z = log mean_k softmax(logits_k): the members are averaged
    first and the average is calibrated, because calibrated members average to an underconfident whole.

    Attributes:
        keeps_class: whether the most probable class is always the same before and after, as for a temperature. Set
            it to False where it can change, as for vector scaling.
        classes: number of classes C that it was fitted on; 0 before `fit`.
    """

    keeps_class: bool = True
    classes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("classes", torch.tensor(0))

    @abstractmethod
    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Fit to logits z (N, C), in float64, and labels (N,) of data that the network was not trained on."""

    @abstractmethod
    def forward(self, z: Tensor) -> Tensor:
        """Calibrated logits (N, C) of logits z (N, C), by tensor operations that `torch.export` can trace."""

    def facts(self) -> dict[str, Any]:
        """What was fitted, in a few plain values for `calibrant info`."""
        return {}

    def fit(self: Own, logits: Any, labels: Any) -> Own:
        """Fit to logits (N, C) or (K, N, C) and labels (N,) that the network was not trained on."""
        z = pooled(logits).double()
        if labels is None:
            raise InputError("labels are missing: a calibrator is fitted to labeled data")
        if len(z) > 1 and bool((z >= 0).all()) and bool((z.sum(1) - 1).abs().max() < 1e-3):
            warnings.warn(
                "the logits are probabilities: in every row they sum to 1; leave the network's softmax layer out",
                stacklevel=2,
            )
        target = checks.labels("labels", labels, z.shape[1])
        checks.same_length("labels", target, "logits", z)
        self.fit_logits(z, target.to(z.device))
        self.classes = torch.full_like(self.classes, z.shape[1])
        return self

    def fit_arrays(self, how: Callable[..., Mapping[str, Any]], z: Tensor, labels: Tensor) -> None:
        """`fit_logits` by a function of NumPy arrays that returns the fitted buffers by name."""
        for name, value in how(z.detach().cpu().numpy(), labels.detach().cpu().numpy()).items():
            setattr(self, name, torch.as_tensor(value).to(getattr(self, name)))

    def transform(self, logits: Any) -> Tensor:
        """Calibrated logits (N, C) for logits (N, C) or (K, N, C), in the dtype and on the device that came in."""
        z = pooled(logits)
        self._check(z.shape[1])
        return self._where_it_is(z).to(z)

    def probabilities(self, logits: Any) -> Tensor:
        """Calibrated probabilities (N, C) for logits (N, C) or (K, N, C)."""
        return self.transform(logits).softmax(-1)

    def of_probabilities(self, probabilities: Any) -> Tensor:
        """Calibrated probabilities (N, C) for probabilities (N, C).

        Of a calibrator that was fitted to a confidence alone, as `calibrant audit` writes for tables without
        probabilities: the calibrated confidence (N,) for a confidence (N,).
        """
        p = checks.finite("probabilities", checks.floating("probabilities", probabilities).detach())
        if p.dim() not in (1, 2) or bool(((p < 0) | (p > 1)).any()):
            raise InputError(f"probabilities must have shape (N, C) or (N,) and lie in [0, 1], not {tuple(p.shape)}")
        rows = p if p.dim() == 2 else torch.stack([1 - p, p], 1)
        self._check(rows.shape[1])
        result = self.of_mean(rows)
        return result if p.dim() == 2 else result[:, 1]

    def of_mean(self, probabilities: Tensor) -> Tensor:
        """Calibrated probabilities (N, C) for the mean probabilities (N, C) of the members, without checks.

        Equal to `probabilities(logits)` up to rounding, as long as no probability underflows.
        """
        z = log_probabilities(probabilities)
        return self._where_it_is(z).softmax(-1).to(probabilities)

    def calibrate(self, predictions: Predictions) -> Predictions:
        """`predictions` with calibrated probabilities and confidence, and the fingerprint of the calibrator.

        Scores, features and the members' logits stay. A selector's output is left out, because it was computed from
        the other confidence.
        """
        if predictions.probabilities is None:
            raise InputError("predictions have no probabilities: a confidence alone cannot be calibrated")
        if predictions.calibrator != NONE:
            raise InputError(
                f"predictions went through the calibrator {predictions.calibrator} already; take the raw ones"
            )
        self._check(predictions.probabilities.shape[1])
        return self.applied(predictions, self.fingerprint())

    def applied(self, predictions: Predictions, fingerprint: str) -> Predictions:
        """`calibrate` without checks, for a `fingerprint` that the caller has."""
        changed = Predictions.from_probabilities(self.of_mean(predictions.probabilities))
        return replace(
            predictions,
            probabilities=changed.probabilities,
            confidence=changed.confidence,
            predicted=predictions.predicted if self.keeps_class else changed.predicted,
            selection=None,
            trust=None,
            calibrator=fingerprint,
        )

    def fingerprint(self) -> str:
        """What a selector remembers of it: its name and a hash of all that was fitted, the same on every device.

        A selector that was fitted to confidences of one calibrator is refused beside another.
        """
        content = hashlib.sha256(json.dumps(self.config(), sort_keys=True).encode())
        for key, value in sorted(self.state_dict().items()):
            rounded = value.detach().cpu().float() if value.is_floating_point() else value.detach().cpu()
            content.update(f"{key}{tuple(value.shape)}".encode())
            content.update(rounded.contiguous().numpy().tobytes())
        name = slots.name_of("calibrator", type(self)) or type(self).__name__
        return f"{name}:{content.hexdigest()[:16]}"

    def check_fitted(self) -> None:
        """Refuse a calibrator on which `fit` was not called."""
        if int(self.classes) == 0:
            raise InputError(f"this {type(self).__name__} is not fitted: call fit(logits, labels) first")

    def _check(self, classes: int) -> None:
        self.check_fitted()
        if classes != int(self.classes):
            raise InputError(f"logits have {classes} columns, but the calibrator was fitted to {int(self.classes)}")

    def _where_it_is(self, z: Tensor) -> Tensor:
        """`forward` on the device of the fitted values."""
        result: Tensor = self(z.to(self.classes.device))
        return result

    def _apply(self: Own, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Own:
        """Fitted values move with the predictor but keep their precision: `predictor.half()` must not round them."""

        def moved(value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return fn(value)
            target = fn(value.float()).device  # MPS has no float64
            return value.to(target, torch.float32 if target.type == "mps" else value.dtype)

        super()._apply(moved, recurse)  # type: ignore[no-untyped-call]
        return self


def pooled(logits: Any) -> Tensor:
    """Logits (N, C) as they are, (N, 1) as two classes; of members (K, N, C) the log of their mean probabilities."""
    value = checks.finite("logits", checks.floating("logits", logits).detach())
    if value.dim() not in (2, 3):
        raise InputError(f"logits must have shape (N, C) or (K, N, C), not {tuple(value.shape)}")
    value = as_classes(value)
    return value if value.dim() == 2 else value.log_softmax(-1).logsumexp(0) - math.log(len(value))


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Logits (..., C) with these probabilities (..., C), of which those that underflowed count as the smallest."""
    return probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log().log_softmax(-1)


def fingerprint_of(calibrator: Calibrator | str | None) -> str:
    """The fingerprint of a calibrator, or one that was kept; None is `"none"`.

    >>> fingerprint_of(None)
    'none'
    """
    return NONE if calibrator is None else calibrator if isinstance(calibrator, str) else calibrator.fingerprint()
