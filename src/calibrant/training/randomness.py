"""One seed, passed on: seeds for every purpose, and a random state of our own that leaves the caller's alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def derive(seed: int, *purpose: str | int) -> int:
    """A seed for `purpose`, independent of the seeds for all others.

    >>> derive(0, "theta", 1) == derive(0, "theta", 1) != derive(0, "theta", 2)
    True
    """
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's default generators: of the CPU and, if it is another, of `device`."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states["device"] = _module(device).get_rng_state()
    return states


def restore_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Set what `random_states` returned."""
    torch.set_rng_state(states["cpu"].cpu())
    if device.type != "cpu":
        _module(device).set_rng_state(states["device"].cpu())


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch's default generators start from `seed`; afterwards they are as they were before."""
    device = torch.device("cpu") if device is None else device
    before = random_states(device)
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        _module(device).manual_seed(seed)
    try:
        yield
    finally:
        restore_random_states(before, device)


def _module(device: torch.device) -> Any:
    return getattr(torch, device.type)
