"""A calibrator as one JSON file: its name, what it was made with and its fitted values. No pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibrant import InputError
from calibrant.files import read_bytes, write_json
from calibrant.slots import recorded, required

if TYPE_CHECKING:
    from calibrant.calibrators.base import Calibrator

FORMAT, VERSION = "calibrant.calibrator", 1
_MOST_BYTES = 2**26


def save(calibrator: Calibrator, path: str | Path) -> Path:
    """Write a fitted calibrator to the JSON file `path`, whole or not at all."""
    calibrator.check_fitted()
    entry = {**recorded("calibrator", type(calibrator)), "config": calibrator.config()}
    return write_state(path, entry, {name: value.cpu().numpy() for name, value in calibrator.state_dict().items()})


def write_state(path: str | Path, entry: Mapping[str, Any], state: Mapping[str, Any], **about: Any) -> Path:
    """Write the fitted values `state` of the calibrator that `entry` names: its name, module and config.

    `about` are plain values for readers of the file, which `load` ignores.
    """
    values = {name: np.asarray(value).tolist() for name, value in state.items()}
    write_json(Path(path), {"format": FORMAT, "version": VERSION, **entry, "about": about, "state": values})
    return Path(path)


def load(path: str | Path) -> Calibrator:
    """The fitted calibrator in the JSON file `path`, as `save` or `calibrant audit --write-calibrator` wrote it.

    It maps logits (N, C) to calibrated logits; `of_probabilities` takes probabilities, or a confidence alone. A
    calibrator of a plugin needs that plugin to be imported first. Nothing in the file is trusted or executed.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} does not exist; write one with calibrant audit --write-calibrator {file}")
    if file.stat().st_size > _MOST_BYTES:
        raise InputError(f"{file} is larger than {_MOST_BYTES} bytes, so it is no calibrator")
    try:
        record = json.loads(read_bytes(file))
        if record["format"] != FORMAT or not 1 <= int(record["version"]) <= VERSION:
            raise InputError
        entry, state = (str(record["name"]), str(record["module"])), _tensors(record["state"])
        config = dict(record["config"])
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        raise InputError(
            f"{file} is not a calibrator that this version reads; write it again with"
            " calibrant.calibrators.save or calibrant audit --write-calibrator"
        ) from None
    try:
        made: Calibrator = required("calibrator", *entry).from_state(config, state)
        made.check_fitted()
    except (TypeError, KeyError) as error:
        raise InputError(f"{file} is damaged: {error}; write it again") from None
    return made


def _tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers as int64, others as float64."""
    import torch

    return {str(name): torch.from_numpy(_numbers(value)) for name, value in state.items()}


def _numbers(value: Any) -> Any:
    array = np.array(value)
    if array.dtype.kind not in "if":
        raise InputError
    return array
