"""Trust: the probability that an answer is right, in a stream that may contain outliers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from calibrant import InputError, checks
from calibrant.calibrators.base import NONE
from calibrant.predictions import Predictions
from calibrant.selective.base import BaseSelector, score_columns
from calibrant.selective.ratio import FARTHEST, SEGMENTS, TAIL, RatioFit, fit_ratio
from calibrant.selective.stream import Share, estimate_share
from calibrant.selective.thresholds import Threshold

_LARGEST = 80.0  # of a log ratio, so that the ratio is finite in float32


class Trust(BaseSelector):
    """The probability that the answer is right, if a share pi of the inputs are outliers:

        trust(x) = P(ID | x) * c(x),     P(ID | x) = (1 - pi) / ((1 - pi) + pi * ratio(x))

    c is the calibrated confidence, which is P(right | x, ID), and ratio = p(x | outlier) / p(x | ID) the likelihood
    ratio; on an outlier no answer is right. Accepting where trust is large is the rule of Bayes for rejection with
    outliers (Narasimhan et al. 2024). The ratio is estimated from detectors' scores by a logistic fit of validation
    data against outliers, described in `calibrant.selective.ratio`: trust never falls as the confidence rises and never
    rises with a score, and a detector that is inverted on these outliers does not enter.

    Args:
        share: pi, in [0, 1). It can be changed after fitting by `with_share`. At 0 trust is the confidence.
        folds: of the cross-validation that chooses detectors and penalty.
        seed: of the folds.

    After `fit`, `names` are the detectors that are read: the columns of `scores` here, in this order, so that
    `predictions.columns(trust.names)` is what `forward` takes. `report_` tells how they were chosen.

    >>> generator = torch.Generator().manual_seed(0)
    >>> def record(shift, size):
    ...     score = shift + torch.randn(size, generator=generator)
    ...     return Predictions(torch.full((size,), 0.9), torch.zeros(size).long(), scores={"knn": score})
    >>> trust = Trust(share=0.5).fit(record(0.0, 1000), record(4.0, 100))
    >>> trust.names
    ('knn',)
    >>> trust(torch.tensor([0.9, 0.9]), torch.tensor([[0.0], [4.0]]))
    tensor([0.8999, 0.0033])
    """

    center: Tensor
    scale: Tensor
    names: tuple[str, ...]
    probability = True
    knots: Tensor
    slopes: Tensor
    intercept: Tensor
    prior: Tensor
    reference: Tensor

    def __init__(self, share: float = 0.1, *, folds: int = 5, seed: int = 0) -> None:
        super().__init__()
        if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
            raise InputError(f"folds must be a whole number of at least 2, not {folds}")
        self._share, self.folds, self.seed = _share(share), folds, seed
        self.names = ()
        self.report_: RatioFit | None = None
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("scale", torch.empty(0))
        self.register_buffer("knots", torch.empty(0, SEGMENTS))
        self.register_buffer("slopes", torch.empty(0, SEGMENTS))
        self.register_buffer("intercept", torch.tensor(0.0))
        self.register_buffer("prior", torch.tensor(self._share))
        self.register_buffer("reference", torch.empty(0, 2))

    @property
    def share(self) -> float:
        """The assumed share of outliers, pi."""
        return self._share

    def fit(self, validation: Predictions, outliers: Predictions, detectors: Sequence[str] | None = None) -> Trust:
        """Fit to N validation examples and M outliers, both with a calibrated confidence and detectors' scores.

        Neither may have been used to train the network or the detectors; no labels are needed. `detectors` names the
        scores that may enter, all of `validation.scores` by default. About twenty outliers suffice for a first ratio.
        """
        names = tuple(validation.scores if detectors is None else detectors)
        if not names:
            raise InputError(
                "validation has no outlier scores, which trust needs: add them with"
                " validation.with_scores(OutlierScores([...]).fit(train)), and the same for outliers"
            )
        if validation.calibrator != outliers.calibrator:
            raise InputError("validation and outliers went through different calibrators; calibrate them alike first")
        for argument, part in (("validation", validation), ("outliers", outliers)):
            if part.count is not None:
                raise InputError(f"{argument} must have one row per input: its rows have counts")
        scores, theirs = _columns("validation", validation, names), _columns("outliers", outliers, names)
        self.fit_arrays(validation.confidence, scores, theirs, names, calibrator=validation.calibrator)
        self.outlier_gates = self.of(outliers).sort().values
        return self

    def fit_arrays(
        self, confidence: Any, scores: Any, outlier_scores: Any, names: Sequence[str], *, calibrator: str | None = None
    ) -> Trust:
        """`fit` on validation confidence (N,), scores (N, S) and outliers' scores (M, S) of the detectors `names`.

        `calibrator` is the fingerprint of the calibrator that the confidence went through, if there is one.
        """
        r = checks.unit_interval("confidence", confidence).detach()
        r = r.to(torch.promote_types(r.dtype, torch.float32))
        s = score_columns(scores, r)
        theirs = checks.finite("outlier_scores", checks.tensor("outlier_scores", outlier_scores)).detach()
        if theirs.dim() != 2 or theirs.shape[1] != s.shape[1] or len(names) != s.shape[1]:
            raise InputError(
                f"outlier_scores must have a column for each of the {s.shape[1]} columns of scores and"
                f" names a name for each, not shape {tuple(theirs.shape)} and {len(names)} names"
            )
        for argument, part in (("scores", s), ("outlier_scores", theirs)):
            if len(part) < self.folds:
                raise InputError(
                    f"{argument} has {len(part)} rows, fewer than the {self.folds} folds; give more, about 20 at least"
                )
        wide = (checks.tensor("scores", scores), theirs)
        fitted = fit_ratio(*(part.detach().cpu().double().numpy() for part in wide), folds=self.folds, seed=self.seed)
        self.names, self.report_ = tuple(names[column] for column in fitted.chosen), fitted
        for buffer in ("center", "scale", "knots", "slopes", "intercept"):
            setattr(self, buffer, torch.as_tensor(getattr(fitted, buffer), dtype=torch.float64).to(r))
        self.reference = torch.stack([r, self.log_ratio(s[:, list(fitted.chosen)])], 1)
        return self._assume(self._share, calibrator)

    def with_share(self, share: float) -> Trust:
        """The same trust for another share of outliers, without fitting again; its threshold has to be set anew."""
        return copy.deepcopy(self)._assume(_share(share), self.calibrator)

    def log_ratio(self, scores: Tensor) -> Tensor:
        """Log p(s | outlier) / p(s | ID), (B,), of scores (B, S) in the order of `names`."""
        upper = torch.cat([self.knots[:, 1:], torch.full_like(self.knots[:, :1], math.inf)], 1)
        relative = (scores.to(self.knots) - self.center) / (TAIL * self.scale)
        z = TAIL * torch.asinh(relative.clamp(-FARTHEST, FARTHEST))
        reach = torch.minimum(torch.maximum(z[:, :, None], self.knots), upper) - self.knots
        return (reach * self.slopes).sum((1, 2)) + self.intercept

    def ratio(self, scores: Tensor) -> Tensor:
        """p(s | outlier) / p(s | ID), (B,), of scores (B, S) in the order of `names`, at most exp(80)."""
        return self.log_ratio(scores).clamp(max=_LARGEST).exp()

    def p_id(self, scores: Tensor) -> Tensor:
        """P(ID | s), (B,), of scores (B, S) in the order of `names`."""
        return self._p_id(self.log_ratio(scores))

    def forward(self, confidence: Tensor, scores: Tensor) -> Tensor:
        """The trust (B,) in [0, 1] of confidence (B,) and scores (B, S) in the order of `names`."""
        return confidence * self.p_id(scores)

    def of(self, predictions: Predictions) -> Tensor:
        """The trust (N,) of predictions whose scores include those of `names`."""
        return self.relaxed(predictions.confidence, _columns("predictions", predictions, self.names))

    def threshold_for_error(self, error: float) -> Threshold:
        """Accept where trust is at least 1 - `error`: where the answer is wrong with probability at most `error`.

        Sets and returns that threshold; `achieved` is the coverage of the validation data that follows.
        """
        self._check_fitted()
        if not 0 <= error <= 1:
            raise InputError(f"error must lie in [0, 1], not {error}")
        self.tau = torch.full_like(self.tau, 1 - error)
        accepted, total = int((self.gates >= self.tau).sum()), len(self.gates)
        return Threshold(float(self.tau), accepted / total, accepted / total, accepted, total)

    def estimate_share(self, predictions: Predictions, *, level: float = 0.95) -> Share:
        """The share of outliers in an unlabeled stream, with an interval; see `calibrant.selective.estimate_share`.

        Put it in force by `trust.with_share(float(share))`.
        """
        self._check_fitted()
        return estimate_share(self.ratio(_columns("predictions", predictions, self.names)), level=level)

    def config(self) -> dict[str, Any]:
        """The constructor's arguments and the names of the detectors."""
        own = {"share": self._share, "folds": self.folds, "seed": self.seed, "names": list(self.names)}
        return {**own, **super().config()}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Trust:
        """Rebuild a fitted trust from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        names, calibrator = tuple(settings.pop("names")), str(settings.pop("calibrator", NONE))
        trust = cls(**settings)._restore(tensors)
        standardization = {part.shape for part in (trust.center, trust.scale)}
        pieces = {part.shape for part in (trust.knots, trust.slopes)}
        if standardization != {(len(names),)} or pieces != {(len(names), SEGMENTS)}:
            raise InputError(f"tensors do not belong to a Trust: they are not those of {len(names)} detectors")
        trust.names, trust.calibrator = names, calibrator
        trust.prior = torch.full_like(trust.intercept, trust.share)
        return trust

    def _p_id(self, log_ratio: Tensor) -> Tensor:
        return torch.sigmoid(-(log_ratio + torch.logit(self.prior)))  # where pi is 0, exactly 1

    def _assume(self, share: float, calibrator: str | None) -> Trust:
        """Put `share` in force: the outputs on the validation data follow from their confidence and ratio."""
        self._share, self.prior = share, torch.full_like(self.intercept, share)
        return self._remember(self.reference[:, 0] * self._p_id(self.reference[:, 1]), calibrator)

    def _check_fitted(self) -> None:
        if self.gates.numel() == 0:
            raise InputError("the trust is not fitted: call fit(validation, outliers) first")

    def _inputs(self, confidence: Any, scores: Any) -> tuple[Tensor, Tensor]:
        r, s = super()._inputs(confidence, scores)
        if s.shape[1] != len(self.names):
            listing = ", ".join(self.names) or "none"
            raise InputError(f"scores have {s.shape[1]} columns, but trust reads {len(self.names)}: {listing}")
        return r, s


def choose_confidence(trust: Trust, candidates: Mapping[str, tuple[Predictions, Predictions]]) -> str:
    """Which of several confidences, such as those before and after OCM, makes trust the best forecast of "right".

    `candidates` holds predictions of the same labeled validation data and of the same outliers, each pair with its own
    confidence and predicted class, and with the scores that `trust` reads. Returns the name with the largest
    (1 - pi) mean log p(right or wrong | validation) + pi mean log(1 - trust | outliers), where an answer is right with
    probability trust. Predictions that the network was trained on say nothing here.
    """

    def likelihood(name: str) -> float:
        validation, outliers = candidates[name]
        right = torch.as_tensor(validation.correct)
        on_validation, on_outliers = (_inside(trust.of(part)) for part in (validation, outliers))
        gain = torch.where(right.to(on_validation.device), on_validation, 1 - on_validation).log().mean()
        return float((1 - trust.share) * gain + trust.share * (1 - on_outliers).log().mean())

    if not candidates:
        raise InputError("candidates is empty")
    return max(candidates, key=likelihood)


def _inside(probability: Tensor) -> Tensor:
    """Away from 0 and 1, so that one overconfident input does not decide."""
    return probability.double().clamp(1e-4, 1 - 1e-4)


def _columns(argument: str, predictions: Predictions, names: Sequence[str]) -> Tensor:
    """The scores (N, S) called `names`, checked."""
    missing = [name for name in names if name not in predictions.scores]
    if missing:
        have = ", ".join(predictions.scores) or "none"
        raise InputError(f"{argument} has no scores called {', '.join(missing)}; it has {have}")
    columns = [checks.floating(f"scores[{name!r}]", predictions.scores[name], dims=1) for name in names]
    return torch.stack(columns, 1) if columns else torch.empty(len(predictions), 0)


def _share(value: float) -> float:
    if not 0 <= value < 1:
        raise InputError(f"share must lie in [0, 1), not {value}")
    return float(value)
