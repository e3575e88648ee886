"""The studies by name."""

from __future__ import annotations

import difflib

from calibrant import InputError
from calibrant.studies import (
    backbone_study,
    cost_study,
    coverage_study,
    eta_study,
    histograms_study,
    pareto_study,
    posteriors_study,
    regularizers_study,
    reliability_study,
    scores_study,
    tradeoff_study,
    trust_study,
)
from calibrant.studies.lab import Lab
from calibrant.studies.plan import BASES
from calibrant.studies.study import Study

STUDIES: dict[str, Study] = {
    one.name: one
    for one in (
        reliability_study.STUDY,
        pareto_study.PARETO,
        histograms_study.STUDY,
        tradeoff_study.TRADE_OFF,
        coverage_study.STUDY,
        cost_study.STUDY,
        pareto_study.ABLATION,
        tradeoff_study.ABLATION,
        eta_study.STUDY,
        backbone_study.STUDY,
        regularizers_study.STUDY,
        scores_study.STUDY,
        trust_study.STUDY,
        posteriors_study.STUDY,
    )
}


def pick(lab: Lab, name: str) -> list[Study]:
    """The study `name`; for "all" those that the plan lists, or every one."""
    if name == "all":
        return [pick(lab, one)[0] for one in lab.plan.studies or STUDIES]
    if name not in STUDIES:
        near = difflib.get_close_matches(name, STUDIES, n=1, cutoff=0.0)[0]
        known = ", ".join([*STUDIES, "all"])
        raise InputError(f"study {name!r} does not exist; did you mean {near}? There are {known}")
    left_out = [base for base in BASES if base not in lab.plan.schemes]
    if STUDIES[name].all_bases and left_out:
        raise InputError(f"study {name} needs {left_out[0]}, too; add it to study.schemes, or run other studies")
    return [STUDIES[name]]
