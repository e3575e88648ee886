"""The whole state of a training stage, to a checkpoint and back: weights, optimizer, random states, position."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant.files import RunError
from calibrant.training.checkpoints import Checkpoint, CheckpointStore, pack_optimizer, unpack_optimizer
from calibrant.training.distributed import agree
from calibrant.training.randomness import random_states, restore_random_states

# Asking rank 0 for the time is a message; with several ranks it is sent only once in this number of steps.
_CLOCK_STEPS = 16


FORMAT = 1  # of checkpoints: raise it when what they hold changes


@dataclass
class Snapshot:
    """What a stage needs to go on: `sums` are this rank's running sums of the epoch, `values` JSON."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    sums: dict[str, Tensor]
    values: dict[str, Any]


class Saver:
    """Decides when to save, and saves; when it does so does not change what is computed."""

    def __init__(self, store: CheckpointStore, *, seconds: float = 60.0, steps: int | None = None) -> None:
        self.store, self.seconds, self.steps = store, seconds, steps
        self._asked, self._saved = 0, time.monotonic()

    def due(self, fabric: Fabric, stopping: bool = False) -> bool:
        """Asked once after every step: whether to save now. All ranks get the same answer."""
        self._asked += 1
        if self.steps is not None and self._asked % self.steps == 0:
            return True
        late = stopping or time.monotonic() - self._saved >= self.seconds
        return agree(late, fabric) if fabric.world_size == 1 or self._asked % _CLOCK_STEPS == 0 else False

    def save(self, snapshot: Snapshot, fabric: Fabric) -> None:
        """Write a checkpoint; every rank takes part, rank 0 writes."""
        own = {**random_states(fabric.device), **{f"sum:{name}": value for name, value in snapshot.sums.items()}}
        everyone = {name: _gather(value, fabric) for name, value in own.items()}
        if fabric.is_global_zero:
            packed = pack_optimizer(snapshot.optimizer)
            tensors = {f"model:{name}": value for name, value in snapshot.model.state_dict().items()}
            tensors |= {f"optimizer:{name}": value for name, value in packed.tensors.items()}
            tensors |= {f"rank{r}:{name}": part for name, parts in everyone.items() for r, part in enumerate(parts)}
            scaler = dict(fabric.strategy.precision.state_dict())
            values = {
                **snapshot.values,
                "sums": list(snapshot.sums),
                "optimizer": packed.values,
                "format": FORMAT,
                "ranks": fabric.world_size,
                "precision": scaler,
            }
            self.store.save(Checkpoint(tensors, values))
        self._saved = time.monotonic()

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer, fabric: Fabric) -> Snapshot | None:
        """Put the newest checkpoint into `model`, `optimizer` and the random states; None if there is none."""
        checkpoint = self.store.load()
        if checkpoint is None:
            return None
        values = checkpoint.values
        if values.get("format") != FORMAT:
            raise RunError(
                f"{self.store.folder} was begun by another version of calibrant, whose checkpoints cannot be read;"
                " finish it with that version, or delete the folder"
            )
        if values["ranks"] != fabric.world_size:
            raise RunError(
                f"{self.store.folder} was begun with {values['ranks']} processes and cannot go on with"
                f" {fabric.world_size}; start as many as before, or delete the folder"
            )
        model.load_state_dict(_under("model", checkpoint))
        unpack_optimizer(optimizer, Checkpoint(_under("optimizer", checkpoint), values["optimizer"]))
        fabric.strategy.precision.load_state_dict(values["precision"])
        own = _under(f"rank{fabric.global_rank}", checkpoint)
        restore_random_states(own, fabric.device)
        # In the order of the terms, which a file of tensors does not keep; ranks add them up one by one.
        sums = {name: own[f"sum:{name}"].to(fabric.device) for name in values["sums"]}
        return Snapshot(model, optimizer, sums, values)


def _under(prefix: str, checkpoint: Checkpoint) -> dict[str, Tensor]:
    start = f"{prefix}:"
    return {name[len(start) :]: value for name, value in checkpoint.tensors.items() if name.startswith(start)}


def _gather(value: Tensor, fabric: Fabric) -> list[Tensor]:
    if fabric.world_size == 1:
        return [value]
    value = value.to(fabric.device)
    parts = [torch.empty_like(value) for _ in range(fabric.world_size)]
    torch.distributed.all_gather(parts, value)
    return parts
