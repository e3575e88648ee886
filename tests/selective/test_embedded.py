"""What selection buys on the embedded digits: SCBNN-OCM over five seeds, with both baselines beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrant.config.loading import load_settings
from calibrant.evaluation import Evaluation, summarize
from calibrant.selective import Selector
from calibrant.training import Workspace, open_data

SEEDS = range(5)


def systems(seed: int) -> list[Evaluation]:
    """The selector, confidence thresholding and selective classification on one trained CBNN-OCM."""
    settings = load_settings("embedded", overrides=[f"seed={seed}", "engine.device=cpu"])
    workspace = Workspace(open_data(settings.data, settings.seed), settings, progress=False)
    outputs = workspace.predictions("SCBNN-OCM")
    names = settings.outliers.scores
    parts = {name: outputs[name] for name in ("validation", "test")}
    check = parts["validation"]
    baseline = Selector("classification", coverage=0.5, seed=seed).fit(
        check.confidence, check.columns(names), check.correct, cross_entropy=check.cross_entropy
    )
    classified = {
        name: replace(p, selection=baseline.relaxed(p.confidence, p.columns(names))) for name, p in parts.items()
    }
    plain = {name: replace(p, selection=None) for name, p in parts.items()}
    named = {"SCBNN-OCM": parts, "confidence threshold": plain, "selective classification": classified}
    return [Evaluation(system, seed, found["test"], {}, found["validation"]) for system, found in named.items()]


@pytest.mark.slow
def test_at_half_coverage_error_and_calibration_are_not_worse_than_at_full_coverage() -> None:
    rows = summarize([one for seed in SEEDS for one in systems(seed)], (1.0, 0.5))
    found = {(row.system, row.wanted_coverage): row for row in rows}
    for (system, coverage), row in found.items():
        print(f"{system:26} {coverage:4} accuracy {row.accuracy} ECE {row.ece}")
    full, half = found["SCBNN-OCM", 1.0], found["SCBNN-OCM", 0.5]
    assert half.ece.estimate <= full.ece.high
    assert half.accuracy.estimate >= full.accuracy.low
