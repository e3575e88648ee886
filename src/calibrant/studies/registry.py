"""The studies by name."""

from __future__ import annotations

import difflib

from calibrant.studies import (
    backbone,
    cost,
    coverage,
    eta,
    histograms,
    pareto,
    regularizers,
    reliability,
    scores,
    tradeoff,
)
from calibrant.studies.lab import Lab
from calibrant.studies.study import Study

STUDIES: dict[str, Study] = {
    one.name: one
    for one in (
        reliability.STUDY,
        pareto.PARETO,
        histograms.STUDY,
        tradeoff.TRADE_OFF,
        coverage.STUDY,
        cost.STUDY,
        pareto.ABLATION,
        tradeoff.ABLATION,
        eta.STUDY,
        backbone.STUDY,
        regularizers.STUDY,
        scores.STUDY,
    )
}


def pick(lab: Lab, name: str) -> list[Study]:
    """The study `name`; for "all" those that the plan lists, or every one."""
    if name == "all":
        return [pick(lab, one)[0] for one in lab.plan.studies or STUDIES]
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1, cutoff=0.0)[0]
        known = ", ".join([*STUDIES, "all"])
        raise ValueError(f"study {name!r} does not exist; did you mean {near}? There are {known}")
    return [STUDIES[name]]
