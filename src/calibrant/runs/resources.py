"""What one task or one worker may use: cores, threads, accelerators, environment variables."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from calibrant import InputError


@dataclass(frozen=True)
class Resources:
    """Processor cores, which are also the threads of PyTorch; accelerators; and whatever else a cluster counts.

    >>> Resources.parse("cpu=2,gpu=0.5")
    Resources(cpu=2, gpu=0.5, custom={})
    """

    cpu: int = 1
    gpu: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str | None) -> Resources:
        """Read `cpu=N,gpu=X,name=X`."""
        found: dict[str, float] = {}
        for part in (text or "").split(",") if text else ():
            name, _, number = part.partition("=")
            try:
                found[name.strip()] = float(number)
            except ValueError:
                raise InputError(f"resources {text!r} must look like cpu=1,gpu=0.5") from None
        cpu, gpu = found.pop("cpu", 1.0), found.pop("gpu", 0.0)
        if cpu < 1 or cpu != int(cpu):
            raise InputError(f"resources must have a whole number of cpu from 1 on, not {cpu:g}")
        if any(not math.isfinite(value) or value < 0 for value in (gpu, *found.values())) or "" in found:
            raise InputError(f"resources {text!r} must be named numbers from 0 on")
        return cls(int(cpu), gpu, found)

    def for_ray(self) -> dict[str, Any]:
        """As keywords of Ray's tasks and actors."""
        custom = {"resources": dict(self.custom)} if self.custom else {}
        return {"num_cpus": self.cpu, "num_gpus": self.gpu, **custom}

    def for_tune(self) -> dict[str, float]:
        """As Ray Tune counts them."""
        return {"cpu": self.cpu, "gpu": self.gpu, **self.custom}


def cores() -> int:
    """The number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Inside, these environment variables are set; afterwards they are as before."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Inside, PyTorch computes with `count` threads: results depend on it in the last digits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
