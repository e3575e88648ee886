"""A small Bayesian network trained on the digits, with outlier scores and a selector: what a person deploys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from calibrant import Ensemble, MeanField, Objective
from calibrant.backbones import build
from calibrant.backbones.normalization import Normalize
from calibrant.data import open_source
from calibrant.deploy import Backbone, Predictor
from calibrant.detectors import OutlierScores
from calibrant.selective import Selector, Training

SHAPE, CLASSES = (1, 8, 8), 10


@dataclass(frozen=True)
class Parts:
    ensemble: Ensemble
    outliers: OutlierScores
    selector: Selector
    test: Tensor

    def predictor(self, coverage: float = 0.7, **settings: object) -> Predictor:
        self.selector.threshold(coverage)
        given = {"outliers": self.outliers, "selector": self.selector, "backbone": Backbone("mlp-24", SHAPE, CLASSES)}
        return Predictor(self.ensemble, **{**given, **settings})


@cache
def posterior() -> tuple[MeanField, Tensor, Tensor]:
    torch.manual_seed(0)
    data = open_source("embedded")
    x, y = data.inputs, data.labels
    scaled = x[:1000].float() / 255
    q = MeanField(
        Normalize(build("mlp-24", SHAPE, CLASSES), scaled.mean((0, 2, 3)), scaled.std((0, 2, 3))), init_std=0.03
    )
    objective, optimizer = Objective(1000), torch.optim.Adam(q.parameters(), 0.01)
    for _ in range(12):
        for batch in torch.randperm(1000).split(50):
            optimizer.zero_grad()
            objective(q(x[batch]), y[batch], kl=q.kl())["loss"].backward()
            optimizer.step()
    return q, x, y


@cache
def digits(members: int) -> Parts:
    """K members; outlier scores on the 1,000 training images, the selector on 297 others, 500 more to test with."""
    q, x, y = posterior()
    ensemble = q.sample(members, seed=1).stored()
    options = {"forest": {"trees": 20, "max_samples": 64}, "svm": {"components": 64}}
    outliers = OutlierScores(options=options, max_points=300).fit(ensemble.predict([x[:1000]]).features)
    validation = ensemble.predict([(x[1000:], y[1000:])])
    scores = outliers.score(validation.features)
    selector = Selector(training=Training(steps=200)).fit(validation.confidence, scores, validation.correct)
    return Parts(ensemble, outliers, selector, open_source("embedded", split="test").inputs)
