"""The predictor: ensemble, calibrator, outlier scores, selector and threshold as one module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from calibrant import InputError, checks
from calibrant.adapters.calling import arguments
from calibrant.adapters.features import FeatureTap
from calibrant.adapters.refused import input_errors
from calibrant.adapters.trees import map_tensors, row_count
from calibrant.adapters.unpacking import as_mapping, inputs_of, split_batch
from calibrant.calibrators import Calibrator
from calibrant.deploy.early import EarlyStopping, decide_early
from calibrant.detectors import OutlierScores
from calibrant.posteriors.ensemble import Ensemble
from calibrant.posteriors.open_rows import OpenRows
from calibrant.predictions import Decision
from calibrant.selective import BaseSelector, Certificate, DecisionRule, Threshold, Trust, threshold_for_coverage

if TYPE_CHECKING:
    from calibrant.deploy.backbone import Backbone


KEPT = 2**28  # bytes


class Predictor(nn.Module):
    """`predictor(x)` decides on a batch of raw inputs: a label with its confidence, and whether to answer at all.

    Args:
        ensemble: the members; a deterministic network is `Ensemble.of(module)`. Members that are drawn on demand are
            kept in memory if all of them take at most `KEPT` bytes.
        calibrator: a fitted calibrator of the members' mean probabilities, such as `TemperatureScaling`; without one
            they stay as they are. The selector must have been fitted to confidences that went through the same one.
        outliers: fitted outlier scores. Fitted to one network while the ensemble has several members, they score the
            features and logits averaged over the members.
        selector: a fitted selector; without one the confidence takes the place of its output.
        threshold: answers are accepted where the selector's output is at least this; by default the selector's own
            threshold, and without a selector everything is accepted. NaN is never accepted.
        ood_score: "confidence" (1 - confidence), any registered detector of logits by name, such as "energy", or one of
            the outlier scores.
        classes: names of the classes.
        feature_layer: the layer whose input the outlier scores were fitted to; by default the last linear layer.
        certificate: what was certified of the threshold, which it then sets; one that certifies nothing sets none.
        backbone: how to rebuild the network when it is loaded, if it is one of `calibrant.backbones`.
        transform: what stands between the inputs and the network: an `ImageTransform`, which is saved with the
            predictor, or any callable that makes a batch of it, which has to be given again when it is loaded.
        factory: what makes the network, as `package.module:function?option=value`: saved as information, never run.

    Threads may share a predictor: their calls take turns.

    >>> predictor = Predictor(Ensemble.of(nn.Linear(2, 3)), threshold=1.0)
    >>> predictor(torch.zeros(4, 2)).accepted
    tensor([False, False, False, False])
    """

    def __init__(
        self,
        ensemble: Ensemble,
        *,
        calibrator: Calibrator | None = None,
        outliers: OutlierScores | None = None,
        selector: BaseSelector | None = None,
        threshold: float | Threshold | None = None,
        ood_score: str = "confidence",
        classes: Sequence[str] | None = None,
        feature_layer: str | None = None,
        backbone: Backbone | None = None,
        certificate: Certificate | None = None,
        transform: Callable[[Any], Any] | None = None,
        factory: str | None = None,
    ) -> None:
        super().__init__()
        if transform is not None and not callable(transform):
            raise InputError(f"transform must be an ImageTransform or another callable, not {transform!r}")
        self.transform, self.factory = transform, factory
        if certificate is not None and certificate.threshold is not None:
            if threshold is not None and float(threshold) != certificate.threshold:
                raise InputError(f"threshold must be the certified one, {certificate.threshold}, or left out")
            threshold = certificate.threshold
        self.certificate = certificate
        FeatureTap(ensemble.network(0), feature_layer)  # refuses an unknown layer
        self.ensemble, self.feature_layer, self.backbone = ensemble.stored(KEPT), feature_layer, backbone
        self.rule = DecisionRule(len(ensemble), outliers, selector, threshold, ood_score, classes, calibrator)
        self.eval()

    @property
    def threshold(self) -> float:
        """What the selector's output, or the confidence, is compared with."""
        return self.rule.threshold

    @property
    def selector(self) -> BaseSelector | None:
        """The selector; a threshold set on it holds from the next call on, unless the predictor has its own."""
        return self.rule.selector

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator of the members' mean probabilities."""
        return self.rule.calibrator

    @property
    def outliers(self) -> OutlierScores | None:
        """The outlier scores."""
        return self.rule.outliers

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes."""
        return self.rule.classes

    @torch.no_grad()
    def forward(self, x: Any, *, early: EarlyStopping | None = None) -> Decision:
        """Decide on inputs (B, ...) on the device of the predictor: a tensor or an array, or a mapping of them, as a
        tokenizer's.

        With a transform, inputs are whatever that takes: images of any size, for an `ImageTransform`.
        With `early`, members are evaluated one after another and each input stops when its decision is settled, unless
        all of them together cost about one, as with a Bayesian head.
        """
        inputs, threshold, total = self.inputs(x), self.threshold, len(self.ensemble)
        with self.ensemble.lock:
            with input_errors(inputs):
                if early is not None and not self.ensemble.cost_one(inputs):
                    rows = OpenRows(self.ensemble, inputs, self.feature_layer)
                    run = partial(self._run, rows)
                    return decide_early(early, self.rule, run, rows.all_rows, total, threshold)
                outputs = self.ensemble.outputs(inputs, self.feature_layer)
            logits, extra = zip(*(self.rule.member_outputs(k, *output) for k, output in enumerate(outputs)))
        return self.rule.decide(torch.stack(logits), torch.stack(extra), threshold)

    def predict(self, loader: Iterable[Any], *, early: EarlyStopping | None = None) -> Decision:
        """Decide on all that `loader` yields (batches `x`, `(x, ...)` or mappings); the result is on the CPU."""
        decided = [self(split_batch(batch)[0], early=early).to("cpu") for batch in loader]
        if not decided:
            raise InputError("loader is empty")
        return Decision.concatenate(decided)

    def at_coverage(self, coverage: float) -> Predictor:
        """A predictor of the same parts, with the threshold that accepts at least `coverage` of the validation data."""
        if self.selector is None:
            raise InputError("coverage cannot be chosen: this predictor was saved without a selector")
        return self._with(self.selector, threshold_for_coverage(self.selector.gates, coverage))

    def at_error(self, error: float) -> Predictor:
        """A predictor of the same parts that accepts an answer where its trust is at least 1 - `error`."""
        trust = self._trust("error")
        return self._with(trust, copy.deepcopy(trust).threshold_for_error(error))

    def at_share(self, share: float) -> Predictor:
        """A predictor of the same parts whose trust assumes that `share` of outliers, with the threshold it has now."""
        return self._with(self._trust("share").with_share(share), self.threshold)

    def _trust(self, what: str) -> Trust:
        if not isinstance(self.selector, Trust):
            raise InputError(f"{what} cannot be chosen: this predictor's rule is not trust")
        return self.selector

    def _with(self, selector: BaseSelector, threshold: float | Threshold) -> Predictor:
        """The same networks under another rule, for which no certificate holds."""
        return Predictor(
            self.ensemble,
            calibrator=self.calibrator,
            outliers=self.outliers,
            selector=selector,
            threshold=threshold,
            ood_score=self.rule.ood_score,
            classes=self.classes,
            feature_layer=self.feature_layer,
            backbone=self.backbone,
            transform=self.transform,
            factory=self.factory,
        )

    def save(self, folder: str | Path) -> Path:
        """Write the predictor to `folder` as safetensors and JSON; `calibrant.load` reads it."""
        from calibrant.deploy.saving import save

        return save(self, folder)

    def export(self, path: str | Path, example: Any) -> list[Path]:
        """Write the whole decision as a `torch.export` program and as ONNX; see `calibrant.deploy.export`."""
        from calibrant.deploy.export import export

        return export(self, path, example)

    def _run(self, member: OpenRows, k: int, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What member k says about `rows`: logits (b, C), and what else is averaged over members (b, E)."""
        return self.rule.member_outputs(k, *member(k, rows))

    def inputs(self, x: Any) -> Any:
        """`x` transformed and checked, on the device and, if it is floating point, in the dtype of the networks."""
        if self.transform is not None:
            x = self.transform(x)
        several = isinstance(x, (tuple, list)) and len(arguments(self.ensemble.network(0), x)[0]) > 1
        if several or as_mapping(x) is not None:
            inputs = inputs_of(x)
            row_count(inputs)  # refuses tensors that are not of one batch
        else:
            inputs = checks.shaped("x", checks.tensor("x", x))
            if inputs.dim() < 2:
                raise InputError(f"x must be a batch (B, ...), not of shape {tuple(inputs.shape)}; use x[None] for one")
        reference = next((value for value in self.ensemble.parameters() if value.is_floating_point()), None)
        if reference is None:
            return inputs
        return map_tensors(inputs, lambda one: one.to(reference if one.is_floating_point() else reference.device))
