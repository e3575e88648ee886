"""The selector: from confidence and outlier scores to a decision to answer or abstain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.calibrators.base import NONE, Calibrator
from calibrant.selective.base import BaseSelector, score_columns
from calibrant.selective.fitting import FitReport, Training, fit_network
from calibrant.selective.network import SelectorNetwork
from calibrant.selective.objectives import SelectorExamples, SelectorObjective, describe_objective, make_objective

_BEFORE = {"printed": "paper", "published": "authors_code"}  # names of variants in what 0.1.0 wrote


class Selector(BaseSelector):
    """A small network on standardized (confidence, scores), fitted to a selective objective.

    `objective` is the name of one in the slot "objective", or an object: "calibration" is the paper's,
    equation 39 (options `eta`, `width`, `variant`, `group`, `zeta`), "classification" has the options `coverage`
    and `penalty`. `training` says how it is fitted; by default L-BFGS minimizes the exact objective. `report_` tells
    how the last fit went. `entropy` says that the last column of the scores is the entropy of the prediction, as in
    the authors' code; a `Predictor` then adds it by itself.

    g = sigmoid(z) of the network's logit z. Thresholds are compared with sigmoid(z / `spread`), where `spread` is 1 for
    "calibration", as in the paper, and for other objectives the largest |z| of the data of `fit`: their g may round to
    1 for many inputs, which would tie them.

    >>> generator = torch.Generator().manual_seed(0)
    >>> confidence, scores = torch.rand(200, generator=generator), torch.randn(200, 4, generator=generator)
    >>> correct = torch.rand(200, generator=generator) < confidence
    >>> selector = Selector(eta=0.01, training=Training(steps=50)).fit(confidence, scores, correct)
    >>> selector.threshold(coverage=0.5).achieved
    0.5
    """

    def __init__(
        self,
        objective: str | SelectorObjective = "calibration",
        *,
        training: Training | None = None,
        hidden: int = 64,
        seed: int = 0,
        entropy: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.objective = make_objective(objective, options)
        self.named = (objective, options) if isinstance(objective, str) else (None, {})
        self.training_settings = training or Training(optimizer="lbfgs")
        self.hidden, self.seed, self.entropy = int(checks.positive("hidden", hidden)), seed, entropy
        self.network: SelectorNetwork | None = None
        self.spread = 1.0
        self.report_: FitReport | None = None

    def fit(
        self,
        confidence: Any,
        scores: Any,
        correct: Any,
        *,
        cross_entropy: Any = None,
        outlier_confidence: Any = None,
        outlier_scores: Any = None,
        calibrator: Calibrator | str | None = None,
    ) -> Selector:
        """Fit to validation data: confidence (N,), scores (N, S) or None, correct (N,), cross_entropy (N,).

        With a further dimension in front, (V, N, ...), the arguments are V augmented views of the same N examples.
        `cross_entropy`, -log p(y | x), is needed by selective classification only, `outlier_confidence` (M,) and
        `outlier_scores` (M, S) of outliers by `zeta` > 0 only. `calibrator` is the one that the confidence went
        through, or its fingerprint (`predictions.calibrator`).
        """
        if self.entropy and scores is None:
            raise InputError("scores must end with the entropy of the prediction: pass columns(None, probabilities)")
        self._check_needs(cross_entropy=cross_entropy, outliers=outlier_confidence)
        inputs, examples = _validation(confidence, scores, correct, cross_entropy)
        outliers = None
        if "outliers" in self.objective.needs:
            outliers = _outliers(outlier_confidence, outlier_scores, inputs)
        network = SelectorNetwork(inputs.shape[2], hidden=self.hidden, seed=self.seed).to(inputs)
        network.standard.fit(inputs.flatten(0, 1))
        self.report_ = fit_network(
            network, inputs, examples, self.objective, self.training_settings, self.seed, outliers
        )
        self.network = network.requires_grad_(False)
        logits = network(inputs[0])
        self.spread = 1.0 if self.objective.keeps_gate else max(1.0, float(logits.abs().max()))
        self.outlier_gates = None if outliers is None else self._compared(network(outliers)).sort().values
        return self._remember(self._compared(logits), calibrator)

    def forward(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """The relaxed decision g in (0, 1), (B,), of confidence (B,) and scores (B, S)."""
        return self._logits(confidence, scores).sigmoid()

    def ranking(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """What a threshold is compared with, (B,): sigmoid(z / spread), larger where g is larger."""
        return self._compared(self._logits(confidence, scores))

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, the number of inputs, and `spread` where it is not 1."""
        inputs = None if self.network is None else self.network.standard.mean.shape[0]
        own = {"hidden": self.hidden, "seed": self.seed, "entropy": self.entropy, "inputs": inputs}
        spread = {} if self.spread == 1 else {"spread": self.spread}
        described = describe_objective(self.objective, *self.named)
        return {**described, "training": asdict(self.training_settings), **own, **spread, **super().config()}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Selector:
        """Rebuild a fitted selector from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        if settings.get("variant") in _BEFORE:
            settings["variant"] = _BEFORE[settings["variant"]]
        spread = float(checks.positive("spread", settings.pop("spread", 1.0)))
        inputs, training = settings.pop("inputs"), Training(**settings.pop("training"))
        calibrator = str(settings.pop("calibrator", NONE))
        selector = cls(training=training, **settings)
        selector.spread, selector.calibrator = spread, calibrator
        if inputs is not None:
            first = tensors["network.layers.0.weight"].shape
            if first != (selector.hidden, inputs) or not _usable(tensors["gates"]):  # before as many weights are made
                raise InputError(f"tensors do not belong to a Selector: a layer has the shape {tuple(first)}")
            network = SelectorNetwork(inputs, hidden=selector.hidden)
            selector.network = network.to(tensors["gates"].dtype).requires_grad_(False)
        selector._restore(tensors)
        if inputs is not None:
            selector._check_inputs(inputs - 1)
        return selector

    def _check_inputs(self, scores: int) -> None:
        """Refuse tensors that do not belong together, by deciding on one example with this number of `scores`."""
        try:
            self(self.gates.new_full((1,), 0.5), self.gates.new_zeros(1, scores))
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"tensors do not belong to a Selector: {reason}") from None

    def _check_needs(self, **given: Any) -> None:
        """Refuse a fit without what the objective needs, or with outliers that it would not look at."""
        meant = {
            "cross_entropy": "cross_entropy, -log p(y | x), must be given: the objective needs it",
            "outliers": "outlier_confidence and outlier_scores must be given: the objective needs outliers",
        }
        for name in self.objective.needs:
            if given[name] is None:
                raise InputError(meant[name])
        if given["outliers"] is not None and "outliers" not in self.objective.needs:
            raise InputError("outlier_confidence was given, but the objective uses no outliers: set zeta > 0")

    def _logits(self, confidence: Tensor, scores: Tensor) -> Tensor:
        if self.network is None:
            raise InputError("the selector is not fitted: call fit(confidence, scores, correct) first")
        logits: Tensor = self.network(torch.cat([confidence[:, None], scores], 1))
        return logits

    def _compared(self, logits: Tensor) -> Tensor:
        return (logits if self.spread == 1 else logits / self.spread).sigmoid()

    def _inputs(self, confidence: Any, scores: Any) -> tuple[Tensor, Tensor]:
        r, s = super()._inputs(confidence, scores)
        wanted = 0 if self.network is None else self.network.standard.mean.shape[0] - 1
        if s.shape[1] != wanted:
            raise InputError(f"scores have {s.shape[1]} columns, but the selector was fitted with {wanted}")
        return r, s


def _usable(gates: Tensor) -> bool:
    return gates.numel() > 0 and gates.is_floating_point()


def _validation(confidence: Any, scores: Any, correct: Any, cross_entropy: Any) -> tuple[Tensor, SelectorExamples]:
    """Checked inputs (V, N, 1 + S) and examples (V, N) in the dtype of the confidence, at least float32."""
    r = checks.tensor("confidence", confidence)
    views = r if r.dim() == 2 else r[None]
    r = checks.unit_interval("confidence", views, dims=2).detach()
    r = r.to(torch.promote_types(r.dtype, torch.float32))
    flat = r.flatten()
    c = checks.correctness("correct", _repeat("correct", correct, r)).detach().to(flat)
    inputs = flat[:, None]
    if scores is not None:
        s = checks.tensor("scores", scores)
        inputs = torch.cat([inputs, score_columns(s.flatten(0, 1) if s.dim() == 3 else s, flat)], 1)
    loss = None
    if cross_entropy is not None:
        loss = checks.finite(
            "cross_entropy", checks.floating("cross_entropy", _repeat("cross_entropy", cross_entropy, r))
        )
        loss = loss.detach().to(flat).view_as(r)
    return inputs.detach().view(*r.shape, -1), SelectorExamples(r, c.view_as(r), loss)


def _outliers(confidence: Any, scores: Any, inputs: Tensor) -> Tensor:
    """Checked inputs (M, 1 + S) at outliers, like those at validation examples (V, N, 1 + S)."""
    r = checks.unit_interval("outlier_confidence", confidence).detach().to(inputs)
    wanted = inputs.shape[2] - 1
    columns = [r[:, None]] if scores is None else [r[:, None], score_columns(scores, r, "outlier_")]
    result = torch.cat(columns, 1).detach()
    if result.shape[1] != inputs.shape[2]:
        raise InputError(f"outlier_scores have {result.shape[1] - 1} columns, but scores have {wanted}")
    return result


def _repeat(name: str, value: Any, like: Tensor) -> Tensor:
    """`value` (N,) or (V, N) as (V N,)."""
    result = checks.tensor(name, value)
    if result.shape != like.shape and result.shape != like.shape[1:]:
        raise InputError(f"{name} has shape {tuple(result.shape)}, but confidence has {tuple(like.shape)}")
    return result.expand(like.shape).flatten()
