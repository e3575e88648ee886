"""The calibrator that is chosen by cross-validated log loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from calibrant import InputError, slots
from calibrant.calibrators.base import NONE, Calibrator
from calibrant.calibrators.choosing import fold_numbers, simplest_best, splits
from calibrant.calibrators.uncalibrated import Uncalibrated
from calibrant.slots import register


@register("calibrator", "auto")
class AutoCalibrator(Calibrator):
    """The simplest of several calibrators that no other beats by more than one standard error of the log loss.

    The held-out data of `fit` are divided into folds at random. Each candidate is fitted to all folds but one and its
    log loss measured on that one. A later candidate takes the place of an earlier one if its mean loss is lower by more
    than one standard error of the difference. The winner is fitted to all the data: `chosen` is its name.

    Args:
        candidates: names of calibrators, from simple to complex; in settings a text, "none, vector".
        folds: number of folds K.
        seed: of the folds.

    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 3 * torch.randn(2000, 3, generator=generator)
    >>> labels = (logits / 2).softmax(1).multinomial(1, generator=generator).squeeze(1)
    >>> AutoCalibrator().fit(logits, labels).chosen
    'temperature'
    """

    def __init__(
        self,
        *,
        candidates: str | Sequence[str] = (NONE, "temperature", "isotonic", "vector"),
        folds: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__()
        names = candidates.replace(",", " ").split() if isinstance(candidates, str) else candidates
        self.candidates = tuple(slots.check("calibrator", name) for name in names)
        if not self.candidates or "auto" in self.candidates:
            raise InputError("candidates must name calibrators to choose from, and not auto itself")
        if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
            raise InputError(f"folds must be a whole number of at least 2, not {folds}")
        self.folds, self.seed = folds, seed
        self.losses: dict[str, float] = {}
        self.inner: Calibrator = Uncalibrated()

    @property
    def chosen(self) -> str:
        """The name of the calibrator that was chosen; "none" before `fit`."""
        return str(slots.name_of("calibrator", type(self.inner)))

    @property
    def keeps_class(self) -> bool:  # type: ignore[override]
        """As the chosen one."""
        return self.inner.keeps_class

    def config(self) -> dict[str, Any]:
        """The constructor's arguments, and what was chosen."""
        own = {"candidates": list(self.candidates), "folds": self.folds, "seed": self.seed, "losses": self.losses}
        recorded = slots.recorded("calibrator", type(self.inner))
        return {**own, "chosen": {**recorded, "config": self.inner.config()}}

    @classmethod
    def from_state(cls, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> AutoCalibrator:
        """Rebuild a fitted one from what `config()` and `state_dict()` returned."""
        settings = dict(config)
        entry, losses = settings.pop("chosen"), dict(settings.pop("losses"))
        kind = slots.required("calibrator", str(entry["name"]), str(entry["module"]))
        made = cls(**settings)
        inside = {key.removeprefix("inner."): value for key, value in tensors.items() if key.startswith("inner.")}
        made.inner, made.losses = kind.from_state(entry["config"], inside), losses
        return made._restore(tensors)

    def fit_logits(self, z: Tensor, labels: Tensor) -> None:
        """Choose, then fit the chosen one to all logits z (N, C) and labels (N,)."""
        losses = {name: self._held_out(name, z, labels) for name in self.candidates}
        self.losses = {name: float(loss.mean()) for name, loss in losses.items()}
        best = simplest_best({name: loss.cpu().numpy() for name, loss in losses.items()})
        self.inner = slots.build("calibrator", best).to(z.device).fit(z, labels)

    def forward(self, z: Tensor) -> Tensor:
        """What the chosen one returns."""
        result: Tensor = self.inner(z)
        return result

    def of_mean(self, probabilities: Tensor) -> Tensor:
        """What the chosen one returns."""
        return self.inner.of_mean(probabilities)

    def facts(self) -> dict[str, Any]:
        """What was chosen, the cross-validated log loss of each candidate, and the facts of the chosen one."""
        losses = {f"log_loss_{name}": loss for name, loss in self.losses.items()}
        return {"chosen": self.chosen, **losses, **self.inner.facts()}

    def _held_out(self, name: str, z: Tensor, labels: Tensor) -> Tensor:
        """-log p_y (N,), each by a fit that did not see it; of a single example, by the fit to it."""
        fold = fold_numbers(len(z), min(self.folds, len(z)), self.seed)
        loss = torch.empty(len(z), dtype=torch.float64, device=z.device)
        for fitting, held_out in splits(fold):
            some, rest = (torch.from_numpy(mask).to(z.device) for mask in (fitting, held_out))
            some = some if bool(some.any()) else rest
            made: Calibrator = slots.build("calibrator", name).to(z.device).fit(z[some], labels[some])
            loss[rest] = nn.functional.cross_entropy(made.transform(z[rest]).double(), labels[rest], reduction="none")
        return loss
