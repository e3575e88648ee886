"""Functions for tasks, which worker processes import by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from calibrant import InputError
from calibrant.files import DivergedError, RunError


def double(argument, send):
    return 2 * argument


def count(argument, send):
    """Sends the numbers below the argument."""
    for number in range(argument):
        send(number)
    return "done"


def where(argument, send):
    import torch

    time.sleep(argument)
    return os.getpid(), os.getsid(0), torch.get_num_threads(), os.environ.get("OMP_WAIT_POLICY")


def fail(argument, send):
    raise {"InputError": InputError, "RunError": RunError}.get(argument, RuntimeError)("it went\nwrong")


def off_by_one(argument, send):
    raise IndexError("off by one")


def diverge(argument, send):
    raise DivergedError("training diverged")


def misuse(argument, send):
    raise InputError("data: x is missing")


def fill_the_disk(argument, send):
    raise OSError(28, "No space left on device")


def fail_until(argument, send):
    """Fails until it was tried so often; the folder counts."""
    folder, often = argument
    (folder / f"try-{os.getpid()}-{time.monotonic_ns()}").touch()
    if len(list(folder.iterdir())) < often:
        raise OSError("the disk went away")
    return "done"


def die(argument, send):
    """Kills its own process unless the file `argument` is there."""
    send("about to die")
    if Path(argument).exists():
        return "survived"
    Path(argument).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def unpicklable(argument, send):
    return lambda: None


def work_until_stopped(argument, send):
    """As a training does: works until a signal comes, finishes its step, saves, and obeys."""
    from calibrant.training.interrupts import deferred_stop

    name, folder = argument
    with deferred_stop() as stop:
        (folder / f"{name}-{os.getpid()}.started").touch()
        while stop.signal is None:
            time.sleep(0.01)
        time.sleep(0.3)
        (folder / f"{name}.saved").touch()
        stop.obey()


def fail_once_there(argument, send):
    """Fails when the file `argument` has appeared."""
    while not list(argument[0].glob(argument[1])):
        time.sleep(0.01)
    raise RunError("the disk is full")


def meet(argument, send):
    """Returns only if another task works at the same time."""
    folder, name = argument
    (folder / name).touch()
    end = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    return threading.active_count()
