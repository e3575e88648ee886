"""What the ranks of a run under `torchrun` say to each other; with one process all of it is free.

DDP averages the gradients of the ranks. Each rank has its part of every batch and its own draw of theta; the KL term
is the same on all of them, so its average counts it once.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from calibrant import InputError
from calibrant.config.groups import EngineSettings


def make_fabric(engine: EngineSettings) -> Fabric:
    """Devices, precision and, under `torchrun`, DDP over all of its processes."""
    world, local = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    accelerator, _, index = engine.device.partition(":")
    devices: Any = local if world > 1 else [int(index)] if index.isdigit() else 1
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=world // local,
            strategy=DDPStrategy() if world > 1 else "auto",
            precision=engine.precision,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).split(". ")[0]
        raise InputError(f"engine.device {engine.device!r} cannot be used ({reason}); choose auto or cpu") from None
    fabric.launch()
    return fabric


def sum_over_ranks(value: Tensor, fabric: Fabric) -> Tensor:
    """The sum of the ranks' `value`, on all of them."""
    if fabric.world_size > 1:
        torch.distributed.all_reduce(value)
    return value


def agree(decision: bool, fabric: Fabric) -> bool:
    """What rank 0 decided."""
    if fabric.world_size == 1:
        return decision
    flag = torch.tensor([decision], dtype=torch.uint8, device=fabric.device)
    torch.distributed.broadcast(flag, 0)
    return bool(flag)


def share_buffers(model: nn.Module, fabric: Fabric) -> None:
    """Give all ranks the buffers (BatchNorm's statistics) of rank 0, as DDP does before every forward pass."""
    if fabric.world_size > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


def gather_with_gradients(value: Tensor, fabric: Fabric) -> Tensor:
    """The ranks' `value` (B, ...) one after another; gradients flow back to the rank that each row came from.

    Every rank evaluates the same function of the gathered rows, and the backward pass of the gathering sums what the
    ranks send back; with DDP's average the result is the gradient of that one function.
    """
    if fabric.world_size == 1:
        return value
    if not value.is_floating_point():
        parts = [torch.empty_like(value) for _ in range(fabric.world_size)]
        torch.distributed.all_gather(parts, value.contiguous())
        return torch.cat(parts)
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(value.contiguous()))  # type: ignore[no-untyped-call]
