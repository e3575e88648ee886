"""How a training stage is followed: a bar on a terminal, a CSV file of its metrics, and TensorBoard on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from calibrant.files import write_csv

Values = Callable[[], Mapping[str, float]]


class _Speed(ProgressColumn):
    """Steps, or whatever is counted, a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g} {self.unit}/s")


class TrainingBar:
    """One bar for one stage.

    `enabled`: None shows it where standard error is a terminal. `advance` asks for the numbers only when the bar is
    drawn, about four times a second, because on an accelerator reading a number waits for the device.
    """

    def __init__(
        self, description: str, total: int, *, done: int = 0, enabled: bool | None = None, unit: str = "steps"
    ) -> None:
        self._shown = sys.stderr.isatty() if enabled is None else enabled
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Speed(unit),
            TimeRemainingColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=Console(stderr=True),
            disable=not self._shown,
        )
        self._task = self._progress.add_task(description, total=total, completed=done, numbers="")
        self._pending, self._drawn = 0, 0.0

    def advance(self, values: Values = dict, count: int = 1) -> None:
        """`count` more are done; `values()` gives the numbers to show."""
        if not self._shown:
            return
        self._pending += count
        now = time.monotonic()
        if now - self._drawn > 0.25:
            numbers = "  ".join(f"{name} {value:.4g}" for name, value in values().items())
            self._progress.update(self._task, advance=self._pending, numbers=numbers)
            self._pending, self._drawn = 0, now

    def __enter__(self) -> TrainingBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.update(self._task, advance=self._pending)
        self._progress.stop()


RowListener = Callable[[list[dict[str, Any]]], None]


def row_listener(folder: Path | None, told: RowListener | None = None, *, tensorboard: bool = False) -> RowListener:
    """A function that is given all rows so far after every epoch, writes them into `folder` and passes them to `told`.

    Without a folder nothing is written.
    """
    logger: Any = None
    if tensorboard and folder is not None:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        logger = TensorBoardLogger(folder, name="tensorboard", version="")

    def listen(rows: list[dict[str, Any]]) -> None:
        if folder is not None:
            write_csv(folder / "metrics.csv", rows, durable=False)
        if logger is not None:
            logger.log_metrics({name: value for name, value in rows[-1].items() if name != "epoch"}, rows[-1]["epoch"])
            logger.save()
        if told is not None:
            told(rows)

    return listen
