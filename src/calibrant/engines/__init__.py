"""Where sweeps and predictions run: in this process, or on a Ray cluster of any size."""

from calibrant.engines.grid import Parameter, Sweep, TrialSpec
from calibrant.engines.local import LocalEngine
from calibrant.engines.ray_predict import RayPrediction, SpreadCount
from calibrant.engines.ray_sweep import RayEngine
from calibrant.engines.record import SweepResult, TrialRow
from calibrant.engines.resources import Resources
from calibrant.engines.sweep import Engine, check_finished, run_sweep

__all__ = [
    "Engine",
    "LocalEngine",
    "Parameter",
    "RayEngine",
    "RayPrediction",
    "Resources",
    "SpreadCount",
    "Sweep",
    "SweepResult",
    "TrialRow",
    "TrialSpec",
    "check_finished",
    "run_sweep",
]
