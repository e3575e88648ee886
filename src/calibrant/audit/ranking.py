"""Whether the score of two classes ranks them the right way round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.evaluation import Resampling
from calibrant.metrics import auroc, bootstrap
from calibrant.metrics.functional import Array


def diagnose_ranking(
    columns: Mapping[str, NDArray[Any]], classes: Sequence[str], how: Resampling, *, binary: bool
) -> list[str]:
    """A warning if the positive class has measurably lower scores than the other one: an AUROC below 1/2.

    `columns` are the confidence (n,), what was said and the truth, the names of two `classes`; `binary` says whether
    one number per row was given and not two.
    """
    if len(classes) != 2 or "truth" not in columns:
        return []
    positive, level = columns["truth"] == classes[1], columns["confidence"].astype(np.float64)
    score = np.where(columns["said"] == classes[1], level, 1 - level)
    parts: list[Array] = [score[~positive], score[positive]]
    if not all(map(len, parts)) or auroc(*parts) >= 0.5:
        return []
    area = bootstrap(auroc, *parts, resamples=how.resamples or 200, level=how.level, seed=how.seed)
    if not area.high < 0.5:
        return []
    asked = (
        f"is it the probability of class {classes[0]}"
        if binary
        else f"are its columns in another order than {classes[0]}, {classes[1]}"
    )
    return [
        f"The score ranks the two classes the wrong way round: its AUROC for class {classes[1]} is"
        f" {100 * area.estimate:.1f} % ({100 * area.low:.1f} to {100 * area.high:.1f}), below 50 %; {asked}?"
    ]
