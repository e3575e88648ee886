"""A trial: one system with one seed, as the few knobs that studies turn away from the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from calibrant.config.schemes import Scheme

Readout = Literal["scheme", "temperature", "classification"]


@dataclass(frozen=True)
class StudyTrial:
    """`scheme` trained with `seed`; a knob that is None stays as the settings have it.

    `weight` is lambda, `regularizer` the calibration regularizer. `readout`: "scheme" is the scheme itself,
    "temperature" has its probabilities scaled by a temperature fitted to validation data, "classification" has the
    selector of selective classification in place of the one of selective calibration. `epochs` shortens the fit.
    `posterior` names a row of the study `posteriors`, and `changes` are the overrides that make it, its family first.

    >>> StudyTrial("CFNN", weight=2.0).name
    'CFNN_lambda-2_seed-0'
    """

    scheme: str
    seed: int = 0
    weight: float | None = None
    regularizer: str | None = None
    gamma: float | None = None
    eta: float | None = None
    readout: Readout = "scheme"
    epochs: int | None = None
    posterior: str | None = None
    changes: tuple[str, ...] = ()

    @property
    def parsed(self) -> Scheme:
        """The scheme, parsed."""
        return Scheme.parse(self.scheme)

    @property
    def name(self) -> str:
        """What names its record: unique, and a file name."""
        knobs = {
            "lambda": self.weight,
            "regularizer": self.regularizer,
            "gamma": self.gamma,
            "eta": self.eta,
            "epochs": self.epochs,
            "posterior": self.posterior,
            "readout": None if self.readout == "scheme" else self.readout,
        }
        told = [f"{name}-{_text(value)}" for name, value in knobs.items() if value is not None]
        return "_".join([self.scheme, *told, f"seed-{self.seed}"])

    @property
    def overrides(self) -> tuple[str, ...]:
        """The knobs as overrides of settings."""
        pairs = {
            "calibration.regularizer": self.regularizer,
            f"calibration.weight.{self.parsed.family}": self.weight,
            "finetune.gamma": self.gamma,
            "selector.eta": self.eta,
            "fit.epochs": self.epochs,
            "selector.objective": "classification" if self.readout == "classification" else None,
        }
        return (*self.changes, *(f"{name}={value}" for name, value in pairs.items() if value is not None))

    @property
    def unit(self) -> StudyTrial:
        """The network behind it: what remains when selector and readout are left out."""
        return replace(self, scheme=str(replace(self.parsed, selective=False)), eta=None, readout="scheme")

    @property
    def parent(self) -> StudyTrial | None:
        """The unit that its network is fine-tuned from."""
        parent = self.unit.parsed.parent
        return None if parent is None else replace(self.unit, scheme=str(parent), gamma=None)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
