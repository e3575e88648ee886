"""Estimates from the bins of confidence that records keep: of measures that were not taken, but follow from them.

The inputs behind a bin are gone, so draws are not those of other measures: bins are drawn anew with their shares as
probabilities, and right answers in each with its accuracy. Those of two systems are independent, and the interval of
their difference is wider than a paired one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from calibrant.metrics.functional import Array
from calibrant.studies.estimates import Estimate, over_seeds
from calibrant.studies.lab import Lab
from calibrant.studies.study_trial import StudyTrial


def overconfidence(lab: Lab, trial: StudyTrial) -> Estimate:
    """The mean confidence on ID test inputs less the accuracy, at coverage 1; negative where `trial` is underconfident.

    With n_m inputs, mean confidence conf_m and accuracy acc_m in bin m it is sum_m n_m (conf_m - acc_m) / sum_m n_m.
    """
    values, draws = [], []
    for one in lab.each_seed(trial):
        bins: Mapping[str, Any] = lab.record(one)["reliability"]
        count = np.array(bins["count"])
        confidence, accuracy = (np.array([v or 0.0 for v in bins[name]]) for name in ("confidence", "accuracy"))
        generator = _generator(one, "reliability")
        counts = _drawn(count, lab.plan.resamples, generator)
        right = generator.binomial(counts.astype(int), accuracy)
        values.append(float(count @ (confidence - accuracy)) / count.sum())
        draws.append((counts @ confidence - right.sum(1)) / count.sum())
    return over_seeds(values, np.stack(draws), (-1.0, 1.0))


def share_above(lab: Lab, trial: StudyTrial, ood: str, first: int) -> Estimate:
    """The share of the inputs of the set `ood` whose confidence lies in bin `first`, counted from 0, or above."""
    values, draws = [], []
    for one in lab.each_seed(trial):
        count = np.array(lab.record(one)["histograms"][ood])
        counts = _drawn(count, lab.plan.resamples, _generator(one, ood))
        values.append(float(count[first:].sum()) / count.sum())
        draws.append(counts[:, first:].sum(1) / count.sum())
    return over_seeds(values, np.stack(draws), (0.0, 1.0))


def _drawn(count: Array, resamples: int, generator: np.random.Generator) -> Array:
    """(R, M): as many inputs as in `count` (M,), drawn from its bins R times."""
    return generator.multinomial(int(count.sum()), count / count.sum(), resamples).astype(float)


def _generator(trial: StudyTrial, about: str) -> np.random.Generator:
    return np.random.default_rng((zlib.crc32(trial.name.encode()), zlib.crc32(about.encode())))
