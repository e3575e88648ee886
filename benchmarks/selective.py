"""The outlier scores against scikit-learn's, the exact selector against minibatches, and stopping early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.svm import OneClassSVM
from torch import Tensor

from benchmarks.measure import Row, seconds
from calibrant import metrics
from calibrant.config.loading import load_settings
from calibrant.deploy import EarlyStopping, Predictor
from calibrant.detectors import OutlierScores
from calibrant.selective import Selector, SelectorExamples, Training
from calibrant.training import Workspace, open_data


def _features(n: int, generator: torch.Generator) -> Tensor:
    """Correlated features of 128 dimensions, as a network's last layer has."""
    mixing = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))
    return (torch.randn(n, 32, generator=generator) @ mixing).relu() + 0.1 * torch.randn(n, 128, generator=generator)


def _scikit_learn(train: np.ndarray, queries: np.ndarray) -> None:
    KernelDensity().fit(train).score_samples(queries)
    IsolationForest().fit(train).score_samples(queries)
    OneClassSVM().fit(train).score_samples(queries)
    NearestNeighbors().fit(train).kneighbors(queries)


def _scores() -> Row:
    generator = torch.Generator().manual_seed(0)
    train, queries = _features(20_000, generator), _features(5_000, generator)
    ours = min(seconds(lambda: OutlierScores().fit(train[None]).score(queries[None])) for _ in range(2))
    theirs = seconds(lambda: _scikit_learn(train.numpy(), queries.numpy()))
    name = "scikit-learn / ours, four outlier scores, 20,000 x 128, 5,000 queries"
    return Row(name, theirs / ours, 20.0, "higher", f"{theirs:.1f} s / {ours:.1f} s")


def _validation(n: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence, four scores and correctness: overconfident, and the more so the further out."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, 4, generator=generator)
    confidence = 0.2 + 0.8 * torch.rand(n, generator=generator).sqrt()
    accuracy = (confidence - 0.25 * torch.sigmoid(2 * scores[:, 0])).clamp(0, 1)
    return confidence, scores, torch.rand(n, generator=generator) < accuracy


def _held_out(selector: Selector) -> metrics.Interval:
    confidence, scores, correct = _validation(10_000, 1)
    gate = selector.relaxed(confidence, scores)
    return metrics.bootstrap(metrics.selective_calibration_error, confidence, correct, gate, coverage=0.5)


def _selector() -> Row:
    validation = _validation(5_000, 0)
    exact, sampled = Selector(group=32, training=Training()), Selector(training=Training(batch_size=32))
    ours, theirs = seconds(lambda: exact.fit(*validation)), seconds(lambda: sampled.fit(*validation))
    eces = [_held_out(selector) for selector in (exact, sampled)]
    detail = f"{theirs:.0f} s / {ours:.1f} s; held-out ECE at half coverage " + " against ".join(
        f"{100 * e.estimate:.2f} % [{100 * e.low:.2f}, {100 * e.high:.2f}]" for e in eces[::-1]
    )
    return Row("250,000 minibatch steps / exact selector fit, 5,000 points", theirs / ours, 20.0, "higher", detail)


def _lbfgs() -> Row:
    validation, fresh = _validation(5_000, 0), _validation(10_000, 1)
    exact, adam = Selector(group=32), Selector(group=32, training=Training())
    ours, theirs = seconds(lambda: exact.fit(*validation)), seconds(lambda: adam.fit(*validation))
    examples = SelectorExamples(fresh[0], fresh[2].float())
    held_out = []
    for selector in (adam, exact):
        logits = selector.relaxed(*fresh[:2]).logit(1e-7)
        held_out.append(float(selector.objective(logits, examples)) / selector.objective.size(len(logits)))
    detail = f"{theirs:.1f} s / {ours:.2f} s; held-out objective {held_out[0]:.4f} against {held_out[1]:.4f}, " + (
        "ECE at half coverage "
        + " against ".join(f"{100 * _held_out(selector).estimate:.2f} %" for selector in (adam, exact))
    )
    return Row("1,000 steps of Adam / L-BFGS, exact selector fit, 5,000 points", theirs / ours, 3.0, "higher", detail)


def _early() -> Row:
    settings = load_settings("embedded", overrides=["posterior.members=20"])
    data = open_data(settings.data, settings.seed)
    workspace = Workspace(data, settings, progress=False)
    selection = workspace.selection("SCBNN-OCM")
    predictor = Predictor(workspace.ensemble("SCBNN-OCM"), outliers=selection.scorer, selector=selection.selector)
    inputs = data.test.inputs  # type: ignore[union-attr]
    full, early = predictor(inputs), predictor(inputs, early=EarlyStopping())
    same = (full.predicted == early.predicted) & (full.accepted == early.accepted)
    used = float(early.members.float().mean()) / 20
    detail = f"{100 * float(same.float().mean()):.2f} % equal decisions (goal 99.5 %), embedded test set, K = 20"
    return Row("members used with early stopping / all", used, 0.5, "lower", detail)


def rows() -> Iterator[Row]:
    """The rows of this file."""
    yield _scores()
    yield _early()
    yield _lbfgs()
    yield _selector()
