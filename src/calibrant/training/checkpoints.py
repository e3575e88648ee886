"""Checkpoints: two generations of safetensors and JSON, so that a save that is cut short costs nothing.

A checkpoint is `checkpoint-0.safetensors` and `checkpoint-0.json`, the next one `checkpoint-1...`, then 0 again. The
JSON is written last and holds the checksum of the tensors and of itself; whatever does not match is not looked at.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from calibrant.files import RunError, checksum, read_json, read_tensors, write_json, write_tensors


@dataclass
class Checkpoint:
    """Tensors by name, and everything else as JSON values."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class CheckpointStore:
    """The two newest checkpoints of a stage, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._serial = max((serial for serial, _ in self._records()), default=-1)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write over the older of the two; the newer one stays until this one is whole."""
        serial = self._serial + 1
        tensors, record = self._files(serial % 2)
        sha256 = write_tensors(tensors, checkpoint.tensors)
        content = {"serial": serial, "sha256": sha256, "values": checkpoint.values}
        write_json(record, {**content, "self": checksum(content)})
        self._serial = serial

    def load(self) -> Checkpoint | None:
        """The newest whole checkpoint; None if there never was one, an error if all are damaged."""
        records = dict(self._records())
        damaged = sum(self._files(slot)[1].exists() for slot in (0, 1)) - len(records)
        for serial in sorted(records, reverse=True):
            try:
                tensors = read_tensors(self._files(serial % 2)[0], records[serial]["sha256"])
            except RunError:
                damaged += 1
                continue
            if damaged:
                message = f"the newest checkpoint in {self.folder} is damaged; resuming from the one before it"
                warnings.warn(message, stacklevel=2)
            return Checkpoint(tensors, records[serial]["values"])
        if damaged:
            raise RunError(f"every checkpoint in {self.folder} is damaged; delete the folder to start again")
        return None

    def clear(self) -> None:
        """Remove both, once the stage has its result; in a run that may only be read, they stay."""
        for slot in (0, 1):
            for path in self._files(slot)[::-1]:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def _files(self, slot: int) -> tuple[Path, Path]:
        return self.folder / f"checkpoint-{slot}.safetensors", self.folder / f"checkpoint-{slot}.json"

    def _records(self) -> list[tuple[int, dict[str, Any]]]:
        """The serial numbers and records of the slots whose JSON is whole."""
        found = []
        for slot in (0, 1):
            _, path = self._files(slot)
            try:
                record = read_json(path) if path.exists() else None
            except RunError:
                record = None
            if isinstance(record, dict) and record.pop("self", None) == checksum(record) and _complete(record):
                found.append((record["serial"], record))
        return found


def _complete(record: dict[str, Any]) -> bool:
    """Whether `record` holds what `save` writes."""
    kinds = {"serial": int, "sha256": str, "values": dict}
    return all(isinstance(record.get(name), kind) for name, kind in kinds.items())


def pack_optimizer(optimizer: torch.optim.Optimizer) -> Checkpoint:
    """The state of `optimizer` as named tensors and JSON values."""
    state = optimizer.state_dict()
    packed = Checkpoint(values={"groups": state["param_groups"], "state": {}})
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                packed.tensors[f"{index}.{name}"] = value
            else:
                packed.values["state"][f"{index}.{name}"] = value
    return packed


def unpack_optimizer(optimizer: torch.optim.Optimizer, packed: Checkpoint) -> None:
    """Put `pack_optimizer`'s result into `optimizer`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**packed.tensors, **packed.values["state"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": packed.values["groups"]})
