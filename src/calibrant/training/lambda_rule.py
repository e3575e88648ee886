"""The paper's choice of lambda: the lowest validation ECE among those that cost at most 1.5 points of accuracy.

Every trial is an ordinary fit in the run directory, so an interrupted selection resumes, and a later run with the
chosen lambda finds its model there. Only validation data is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibrant import InputError
from calibrant.config.schemes import Scheme
from calibrant.training.workspace import Workspace


@dataclass(frozen=True)
class Trial:
    """lambda and what it gives on validation data, as fractions."""

    weight: float
    accuracy: float
    ece: float


@dataclass(frozen=True)
class LambdaChoice:
    """The chosen lambda, the trial without regularizer that the others are held against, and all trials."""

    weight: float
    baseline: Trial
    trials: tuple[Trial, ...]


def choose(baseline: Trial, trials: Sequence[Trial], max_accuracy_drop: float = 0.015) -> float:
    """The lambda of lowest ECE whose accuracy is within the drop; 0, no regularizer, where there is none.

    Of equal ECEs the smaller lambda wins.

    >>> choose(Trial(0, 0.75, 0.10), [Trial(1, 0.74, 0.06), Trial(2, 0.735, 0.05), Trial(3, 0.70, 0.01)])
    2
    """
    allowed = [t for t in trials if baseline.accuracy - t.accuracy <= max_accuracy_drop + 1e-9]
    return min(allowed, key=lambda t: (t.ece, t.weight)).weight if allowed else 0.0


def select_lambda(workspace: Workspace, scheme: Scheme | str, grid: Sequence[float] | None = None) -> LambdaChoice:
    """Fit `scheme` for every lambda of `grid` (default: the settings') and apply the rule."""
    base = Scheme.parse(scheme).base
    if not base.calibrated:
        raise InputError(f"scheme {base} has no calibration regularizer, so there is no lambda to select")
    calibration = workspace.settings.calibration
    plain = workspace.validation(replace(base, calibrated=False))
    baseline = Trial(0.0, plain["accuracy"], plain["ece"])
    trials = []
    for weight in calibration.grid if grid is None else grid:
        found = workspace.with_settings(f"calibration.weight.{base.family}={weight}").validation(base)
        trials.append(Trial(float(weight), found["accuracy"], found["ece"]))
    return LambdaChoice(choose(baseline, trials, calibration.max_accuracy_drop), baseline, tuple(trials))
