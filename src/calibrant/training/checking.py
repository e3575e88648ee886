"""What is refused before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.training import ruling, selecting
from calibrant.training.train_stage import stage_objective
from calibrant.training.training_data import TrainingData


def check_schemes(schemes: Iterable[Scheme], data: TrainingData, settings: Settings) -> None:
    """Refuse, before anything is trained, what `schemes` cannot have with `data` and `settings`."""
    for scheme in schemes:
        ruling.check_rule(settings, scheme, data)
        stage_objective(scheme, settings, num_data=1)
        if scheme.ocm:
            data.outliers_for(scheme)
        if scheme.selective:
            selecting.build_scorer(settings.outliers, settings.seed)  # both refuse options that do not fit
            if "outliers" in selecting.build_selector(settings.selector, settings.seed).objective.needs:
                ruling.selector_outliers(data, settings, scheme)  # refuses inputs of which none can be made
