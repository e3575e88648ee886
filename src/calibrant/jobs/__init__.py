"""What the commands do, for use from Python too: train a run, evaluate it, predict with it, report on it, the demo.

Names are resolved on first use: predicting must not wait for what only training needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Run": "folder",
    "at_coverage": "deploying",
    "choose_device": "deploying",
    "evaluate_predictor": "evaluating",
    "evaluate_run": "evaluating",
    "evaluation_of": "evaluating",
    "open_runs": "folder",
    "predict_table": "predicting",
    "predictor_folder": "folder",
    "predictor_of": "deploying",
    "report_page": "reporting",
    "run_demo": "demo",
    "table_of": "reporting",
    "train_run": "training",
    "writable": "folder",
    "write_table": "reporting",
}

__all__ = [
    "Run",
    "at_coverage",
    "choose_device",
    "evaluate_predictor",
    "evaluate_run",
    "evaluation_of",
    "open_runs",
    "predict_table",
    "predictor_folder",
    "predictor_of",
    "report_page",
    "run_demo",
    "table_of",
    "train_run",
    "writable",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"calibrant.jobs.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'calibrant.jobs' has no attribute {name!r}")


if TYPE_CHECKING:
    from calibrant.jobs.demo import run_demo
    from calibrant.jobs.deploying import at_coverage, choose_device, predictor_of
    from calibrant.jobs.evaluating import evaluate_predictor, evaluate_run, evaluation_of
    from calibrant.jobs.folder import Run, open_runs, predictor_folder, writable
    from calibrant.jobs.predicting import predict_table
    from calibrant.jobs.reporting import report_page, table_of, write_table
    from calibrant.jobs.training import train_run
