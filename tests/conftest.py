"""One thread a process, a fixed seed for what a test draws from the global generator, and a Ctrl-C that is heard."""

from __future__ import annotations

import signal

import pytest
import torch

# A user's module: to look for doctests in it would import it, and register what it brings for all other tests.
collect_ignore = ["own_ideas.py"]
# A program of its own, `make fuzz`.
collect_ignore_glob = ["fuzz/*"]

torch.set_num_threads(1)
# Shells start background jobs with Ctrl-C ignored, which processes inherit; the tests of interruption need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
