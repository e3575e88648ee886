"""The device that a name stands for."""

from __future__ import annotations

import torch

from calibrant import InputError


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; "auto" is an accelerator if there is one. Refused if it is not there."""
    if name == "auto":
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return torch.device("cpu") if found is None else found
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"device {name!r} is not there; `calibrant info` lists the devices of this machine") from None
    return device
