"""Metrics of a stage as they come: a CSV file, and TensorBoard on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from calibrant.files import write_csv

RowListener = Callable[[list[dict[str, Any]]], None]


def row_listener(folder: Path, *, tensorboard: bool = False) -> RowListener:
    """A function that is told all rows so far after every epoch and writes them into `folder`."""
    logger: Any = None
    if tensorboard:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        logger = TensorBoardLogger(folder, name="tensorboard", version="")

    def listen(rows: list[dict[str, Any]]) -> None:
        write_csv(folder / "metrics.csv", rows, durable=False)
        if logger is not None:
            logger.log_metrics({name: value for name, value in rows[-1].items() if name != "epoch"}, rows[-1]["epoch"])
            logger.save()

    return listen
