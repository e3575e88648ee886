"""A progress bar with loss terms, accuracy, speed and time left; nothing at all where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

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
