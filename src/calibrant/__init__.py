"""Classifiers that know when they don't know.

Public names are resolved on first use, so that `import calibrant` and `calibrant --help` stay fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"


class InputError(ValueError):
    """What was given cannot be used; one sentence names it and says what to do. The command line exits with code 2."""


_HOMES = {
    "CalibratedClassifier": "calibrant.deploy.estimator",
    "Decision": "calibrant.deploy",
    "Ensemble": "calibrant.posteriors.ensemble",
    "MeanField": "calibrant.posteriors.mean_field",
    "Objective": "calibrant.losses.objective",
    "Predictions": "calibrant.predictions",
    "Predictor": "calibrant.deploy",
    "Scheme": "calibrant.config.schemes",
    "Selector": "calibrant.selective",
    "Trust": "calibrant.selective",
    "load": "calibrant.deploy",
    "measure": "calibrant.metrics.declarations",
    "register": "calibrant.slots",
}
_ROOMS = ["audit", "backbones", "calibrators", "data", "detectors", "evaluation", "kernels", "losses", "metrics"]
_ROOMS += ["posteriors", "report", "selective"]
_EXTRAS = {
    "app": "PIL filelock jinja2 lightning_fabric matplotlib pooch pyarrow pydantic rich safetensors typer yaml",
    "onnx": "onnx onnxruntime onnxscript",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "torchmetrics": "torchmetrics",
}

__all__ = ["InputError", *_HOMES, *_ROOMS]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES and name not in _ROOMS:
        raise AttributeError(f"module 'calibrant' has no attribute {name!r}")
    try:
        module = importlib.import_module(_HOMES.get(name, f"calibrant.{name}"))
    except ModuleNotFoundError as error:
        if (line := install_line(error.name)) is None:
            raise
        raise ModuleNotFoundError(f"{name} needs {error.name}: {line}", name=error.name) from None
    return getattr(module, name) if name in _HOMES else module


def names_on_first_use(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a `package` that imports the modules in `homes` when a name of them is used."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get, lambda: [*vars(importlib.import_module(package)), *homes]


def install_line(module: str | None) -> str | None:
    """What installs `module`, if it is part of one of our extras.

    >>> install_line("pydantic")
    "pip install 'calibrant[app]'"
    """
    top = (module or "").partition(".")[0]
    found = next((extra for extra, modules in _EXTRAS.items() if top in modules.split()), None)
    return found and f"pip install 'calibrant[{found}]'"


def __dir__() -> list[str]:
    return [*globals(), *__all__]


if TYPE_CHECKING:
    from calibrant import (
        audit,
        backbones,
        calibrators,
        data,
        detectors,
        evaluation,
        kernels,
        losses,
        metrics,
        posteriors,
        report,
        selective,
    )
    from calibrant.config.schemes import Scheme
    from calibrant.deploy import Decision, Predictor, load
    from calibrant.deploy.estimator import CalibratedClassifier
    from calibrant.losses.objective import Objective
    from calibrant.metrics.declarations import measure
    from calibrant.posteriors.ensemble import Ensemble
    from calibrant.posteriors.mean_field import MeanField
    from calibrant.predictions import Predictions
    from calibrant.selective import Selector, Trust
    from calibrant.slots import register
