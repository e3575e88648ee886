"""What a sweep found, in memory and on disk.

OUT/sweep.json    what was asked for, how far it is, all trials, the winner; written whole after every trial
OUT/sweep.csv     the trials as a table
OUT/pareto.png    accuracy against ECE
OUT/attempts/     a note by every process that began a trial
OUT/stages/       the run cache: see `calibrant.runs.stages`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from calibrant import InputError
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.files import RunError, read_json, write_csv, write_json
from calibrant.runs.executor import Ended
from calibrant.training import Trial, choose
from calibrant.training.sweeps.grid import Parameter, Sweep

RECORD, TABLE, FIGURE = "sweep.json", "sweep.csv", "pareto.png"


@dataclass(frozen=True)
class TrialRow:
    """A trial and what it gave on validation data, as fractions.

    `state` is pending, finished, stopped (early: it takes no part in the choice) or failed, for `reason`; `attempts`
    counts the processes that began it.
    """

    name: str
    params: Mapping[str, Any]
    key: str
    state: str = "pending"
    attempts: int = 0
    accuracy: float | None = None
    ece: float | None = None
    cross_entropy: float | None = None
    reason: str = ""

    def after(self, ended: Ended, epochs: int, attempts: int) -> TrialRow:
        """The row once the trial, of that number of epochs, has ended."""
        early = f"early, after epoch {ended.stopped} of {epochs}"
        reason = early if ended.state == "stopped" else ended.reason
        return replace(self, state=ended.state, reason=reason, attempts=attempts, **(ended.value or {}))

    def flat(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """As a line of a table, with a column for each of the parameters `names`."""
        values = asdict(self)
        params = values.pop("params")
        return {"name": values.pop("name"), **{name: params.get(name) for name in names}, **values}


@dataclass(frozen=True)
class SweepResult:
    """The baseline, all trials in order, and by the rule the winner."""

    sweep: Sweep
    baseline: TrialRow
    trials: tuple[TrialRow, ...]
    errors: Mapping[str, Exception] = field(default_factory=dict, compare=False)
    """What the trials that failed just now failed with, by name; not written."""

    @property
    def winner(self) -> TrialRow | None:
        """The trial with the lowest ECE of those whose accuracy is within the drop; the baseline where there is none.

        Of equal ECEs the smaller value wins, or with several parameters the earlier trial. None as long as the
        baseline is not finished.
        """
        if self.baseline.accuracy is None or self.baseline.ece is None:
            return None
        ranked = self._ranked()
        rivals = [
            Trial(rank, row.accuracy, row.ece)
            for rank, row in enumerate(ranked, 1)
            if row.accuracy is not None and row.ece is not None
        ]
        baseline = Trial(0, self.baseline.accuracy, self.baseline.ece)
        rank = choose(baseline, rivals, self.sweep.settings.calibration.max_accuracy_drop)
        return (self.baseline, *ranked)[int(rank)]

    def _ranked(self) -> list[TrialRow]:
        values = [next(iter(row.params.values())) for row in self.trials]
        numeric = len(self.sweep.parameters) == 1 and all(isinstance(value, (int, float)) for value in values)
        if not numeric:
            return list(self.trials)
        return sorted(self.trials, key=lambda row: float(next(iter(row.params.values()))))

    @property
    def overrides(self) -> tuple[str, ...]:
        """The settings of the winner, as overrides of those of the sweep."""
        winner = self.winner
        found = {trial.name: trial.overrides for trial in self.sweep.trials()}
        return () if winner is None else found.get(winner.name, ())

    def rows(self) -> tuple[TrialRow, ...]:
        """The baseline, then the trials."""
        return (self.baseline, *self.trials)

    def save(self, out: Path) -> None:
        """Write `sweep.json` and `sweep.csv`, each whole or not at all."""
        winner = self.winner
        write_json(
            out / RECORD,
            {
                "scheme": str(self.sweep.scheme),
                "parameters": {one.name: list(one.values) for one in self.sweep.parameters},
                "max_accuracy_drop": self.sweep.settings.calibration.max_accuracy_drop,
                "winner": None if winner is None else {"name": winner.name, "overrides": list(self.overrides)},
                "baseline": asdict(self.baseline),
                "trials": [asdict(row) for row in self.trials],
                "settings": self.sweep.settings.model_dump(mode="json"),
            },
        )
        names = [one.name for one in self.sweep.parameters]
        write_csv(out / TABLE, [row.flat(names) for row in self.rows()])

    @classmethod
    def load(cls, out: Path) -> SweepResult:
        """What `save` wrote."""
        path = out / RECORD
        if not path.exists():
            raise InputError(f"{out} holds no sweep: it has no {RECORD}; begin one with --param")
        try:
            record = read_json(path)
            settings = Settings.model_validate(record["settings"])
            parameters = tuple(Parameter(name, tuple(values)) for name, values in record["parameters"].items())
            sweep = Sweep(settings, Scheme.parse(record["scheme"]), parameters)
            return cls(sweep, TrialRow(**record["baseline"]), tuple(TrialRow(**row) for row in record["trials"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RunError(f"{path} was altered; begin the sweep again: finished trials are reused") from None

    def draw(self, out: Path) -> None:
        """Accuracy against ECE as `pareto.png`, once something is finished."""
        from calibrant.report import TradeOffDisplay, save_figure

        rows = [row for row in self.rows() if row.accuracy is not None and row.ece is not None]
        if not rows:
            return
        display = TradeOffDisplay.from_values(
            [row.accuracy for row in rows], [row.ece for row in rows], names=[row.name for row in rows]
        )
        save_figure(display.figure_, out / FIGURE)
