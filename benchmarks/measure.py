"""Interleaved timing: machines are noisy, so that only the ratio of two things timed in turns means anything.

The clock counts the processor time of this process (one thread), so that what else runs on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """One line of `results/bench.json`: `ratio` should be at most ("lower") or at least ("higher") `goal`."""

    name: str
    ratio: float
    goal: float | None
    better: str
    detail: str


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def best_of(rounds: int, *works: Callable[[], object]) -> list[float]:
    """The best time of each work over `rounds` rounds, run in turns, after one round to warm up."""
    for work in works:
        work()
    times = [[seconds(work) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times)]
